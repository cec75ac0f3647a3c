// Steps of a decoder of random weights on a backend's plugin: prompts and decode batches, with CUDA graphs and without.
//
//   step_bench [--plugin backend_cuda.so] [--shape llama-3.1-8b] [--batches 1,8,64] [--context 1024] ...
//
// Of each: the median time of a step, and of it the host's, up to where it only waits. Logits are brought to the host
// as far as the backend does that. Printed as one JSON object; progress goes to stderr.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/decoder_skeleton.h"
#include "glog/logging.h"
#include "kernels/plugin/cuda_plugin.h"
#include "nlohmann/json.hpp"

namespace sluice::bench {
namespace {

using kernels::DType;

const std::map<std::string, SkeletonShape>& Shapes() {
  static const auto& shapes = *new std::map<std::string, SkeletonShape>{
      {"llama-3.1-8b", {32, 4096, 32, 8, 128, 14336, 128256, DType::kBF16, DType::kBF16, true}},
      {"smollm2-135m", {30, 576, 9, 3, 64, 1536, 49152, DType::kBF16, DType::kBF16, true}},
      {"tiny", {2, 128, 4, 2, 64, 192, 320, DType::kBF16, DType::kBF16, true}}};
  return shapes;
}

struct Flags {
  std::string plugin = kernels::DefaultCudaPluginPath(), shape = "llama-3.1-8b";
  int device = 0, context = 1024, chunk = 2048, repetitions = 30, warm_ups = 3;
  std::vector<int> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256}, prompts = {512, 2048, 8192};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Medians, after the warm-ups, of what `run` takes and of what it returns.
std::pair<double, double> Time(const Flags& flags, const std::function<double()>& run) {
  std::vector<double> whole, host;
  for (int i = 0; i < flags.warm_ups + flags.repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double issue = run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i < flags.warm_ups) continue;
    whole.push_back(took.count());
    host.push_back(issue);
  }
  return {Median(whole), Median(host)};
}

void MeasureDecode(const Flags& flags, bool graphs, DecoderSkeleton& decoder, nlohmann::json& out) {
  for (const int batch : flags.batches) {
    const auto [step, host] = Time(flags, [&] { return decoder.Step(batch, 1, flags.context - 1); });
    out.push_back({{"batch", batch},
                   {"context", flags.context},
                   {"graphs", graphs},
                   {"step_us", step * 1e6},
                   {"host_us", host * 1e6},
                   {"tokens_per_s", batch / step}});
    std::cerr << "decode " << batch << (graphs ? ", graphs: " : ": ") << step * 1e3 << " ms\n";
  }
}

void MeasurePrefill(const Flags& flags, DecoderSkeleton& decoder, nlohmann::json& out) {
  Flags fewer = flags;
  fewer.repetitions = std::max(1, flags.repetitions / 6);
  fewer.warm_ups = 1;
  for (const int prompt : flags.prompts) {
    const auto [whole, host] = Time(fewer, [&] {
      double issue = 0;
      for (int done = 0; done < prompt; done += flags.chunk) {
        issue += decoder.Step(1, std::min(flags.chunk, prompt - done), done);
      }
      return issue;
    });
    out.push_back({{"prompt", prompt},
                   {"chunk", flags.chunk},
                   {"ms", whole * 1e3},
                   {"host_us", host * 1e6},
                   {"tokens_per_s", prompt / whole}});
    std::cerr << "prefill " << prompt << ": " << whole * 1e3 << " ms\n";
  }
}

absl::Status Run(const Flags& flags) {
  auto plugin = kernels::LoadCudaPlugin(flags.plugin);
  if (!plugin.ok()) return plugin.status();
  const SkeletonShape& shape = Shapes().at(flags.shape);
  const int longest = std::max(flags.context, *std::max_element(flags.prompts.begin(), flags.prompts.end()));
  const int most = *std::max_element(flags.batches.begin(), flags.batches.end());
  const int blocks = std::max(most * kernels::BlocksFor(flags.context, 16), kernels::BlocksFor(longest, 16));
  nlohmann::json out = {{"shape", flags.shape}, {"decode", nlohmann::json::array()}};
  out["prefill"] = nlohmann::json::array();
  for (const bool graphs : {true, false}) {  // one after the other: two do not fit side by side
    auto backend = (*plugin)->new_backend({.device = flags.device, .graphs = graphs});
    if (!backend.ok()) return backend.status();
    const auto start = std::chrono::steady_clock::now();
    DecoderSkeleton decoder(**backend, shape, std::max(flags.chunk, most), most, longest, blocks);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cerr << flags.shape << " is loaded: " << took.count() << " s\n";
    out["load_s"] = took.count();
    MeasureDecode(flags, graphs, decoder, out["decode"]);
    if (graphs) MeasurePrefill(flags, decoder, out["prefill"]);
  }
  std::cout << out.dump() << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  CLI::App app("Steps of a decoder of random weights on a GPU");
  sluice::bench::Flags flags;
  std::vector<std::string> shapes;
  for (const auto& [name, shape] : sluice::bench::Shapes()) shapes.push_back(name);
  app.add_option("--plugin", flags.plugin, "The backend's plugin")->capture_default_str();
  app.add_option("--device", flags.device, "GPU")->capture_default_str();
  app.add_option("--shape", flags.shape, "Model")->check(CLI::IsMember(shapes))->capture_default_str();
  app.add_option("--batches", flags.batches, "Sequences of a decode step")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--context", flags.context, "Their tokens, the new one included")->check(CLI::Range(1, 1 << 20));
  app.add_option("--prompts", flags.prompts, "Tokens of a prompt")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--chunk", flags.chunk, "Of a prompt in a step")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  app.add_option("--repetitions", flags.repetitions, "Of a decode step; a sixth of a prompt")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = sluice::bench::Run(flags);
  if (status.ok()) return 0;
  std::cerr << "step_bench: " << status.message() << "\n";
  return 1;
}
