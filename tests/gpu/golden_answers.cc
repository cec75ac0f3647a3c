// Greedy answers of one engine to the prompts of a golden file (tests/golden/README.md), on a GPU or on the CPU in f32.
//
//   golden_answers MODEL GOLDEN.json [--plugin backend_cuda.so] [--prompts N] [--tokens N] [--alone]
//
// Prints one JSON object: of each prompt its name, the answer's ids and the five best log-probabilities of each step.
// With --alone every prompt is answered once more, with nothing beside it, and it says whether all bits are the same.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/plugin/cuda_plugin.h"
#include "nlohmann/json.hpp"

namespace sluice {
namespace {

using engine::Sampled;
using nlohmann::json;

struct Flags {
  std::string model, golden, plugin;
  int device = 0, prompts = 1 << 20, tokens = 1 << 20, kv_mb = 1024;
  bool graphs = true, alone = false;
};

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackend(const Flags& flags) {
  if (flags.plugin.empty()) return kernels::NewCpuBackend({.compute = kernels::CpuCompute::kF32});
  auto plugin = kernels::LoadCudaPlugin(flags.plugin);
  if (!plugin.ok()) return plugin.status();
  return (*plugin)->new_backend({.device = flags.device, .graphs = flags.graphs});
}

absl::StatusOr<json> ReadGolden(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  json golden = json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (golden.is_object() && golden.contains("prompts") && golden.contains("n")) return golden;
  return absl::InvalidArgumentError(absl::StrCat(path, ": not a golden file (an object with prompts and n)"));
}

struct Prompt {
  std::string name;
  std::vector<int32_t> ids;
};

// Answers to all of `prompts`, computed together.
absl::StatusOr<std::vector<std::vector<Sampled>>> Answer(engine::Engine& engine, const std::vector<Prompt>& prompts,
                                                         int tokens) {
  std::vector<std::vector<Sampled>> answers(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine::EngineRequest r;
    r.id = i;
    r.tokens = prompts[i].ids;
    r.num_prompt_tokens = int(r.tokens.size());
    r.may_wait = true;
    r.sampling.max_tokens = tokens;
    r.sampling.logprobs = 5;
    r.sampling.ignore_eos = true;
    if (absl::Status status = engine.Add(std::move(r)); !status.ok()) return status;
  }
  while (engine.has_work()) {
    auto outputs = engine.Step();
    if (!outputs.ok()) return outputs.status();
    for (engine::TokenOutput& out : *outputs) answers[out.id].push_back(std::move(out.sampled));
  }
  return answers;
}

bool SameBits(const std::vector<Sampled>& a, const std::vector<Sampled>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Sampled& x, const Sampled& y) {
    return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
  });
}

absl::Status Run(const Flags& flags) {
  auto golden = ReadGolden(flags.golden);
  if (!golden.ok()) return golden.status();
  std::vector<Prompt> prompts;
  for (const json& prompt : (*golden)["prompts"]) {
    if (int(prompts.size()) == flags.prompts) break;
    prompts.push_back({prompt["name"], prompt["ids_hf"].get<std::vector<int32_t>>()});
  }
  auto file = engine::OpenModel(flags.model);
  if (!file.ok()) return file.status();
  auto backend = OpenBackend(flags);
  if (!backend.ok()) return backend.status();
  auto engine = engine::Engine::Create(
      **file, **backend,
      {.max_kv_bytes = int64_t{flags.kv_mb} << 20, .max_context = std::min((*file)->config().context_length, 4096)});
  if (!engine.ok()) return engine.status();

  const int tokens = std::min(flags.tokens, (*golden)["n"].get<int>());
  auto answers = Answer(**engine, prompts, tokens);
  if (!answers.ok()) return answers.status();
  json out = {{"numerics", (*backend)->numerics_id()}, {"n", tokens}, {"prompts", json::array()}};
  bool same = true;
  for (size_t i = 0; i < prompts.size(); ++i) {
    json answer = {{"name", prompts[i].name}, {"ids_hf", prompts[i].ids}};
    for (const Sampled& s : (*answers)[i]) {
      answer["output_ids"].push_back(s.token);
      answer["top5"].push_back(s.top);
    }
    out["prompts"].push_back(std::move(answer));
    if (!flags.alone) continue;
    auto alone = Answer(**engine, {prompts[i]}, tokens);
    if (!alone.ok()) return alone.status();
    same = same && SameBits((*alone)[0], (*answers)[i]);
  }
  if (flags.alone) out["alone_is_the_same"] = same;
  std::cout << out.dump() << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  CLI::App app("Greedy answers to the prompts of a golden file");
  sluice::Flags flags;
  app.add_option("model", flags.model, "GGUF file")->required();
  app.add_option("golden", flags.golden, "JSON file with the prompts")->required();
  app.add_option("--plugin", flags.plugin, "The CUDA backend's plugin; without it the CPU computes, in f32");
  app.add_option("--device", flags.device, "GPU");
  app.add_option("--prompts", flags.prompts, "Only so many of the first")->check(CLI::Range(1, 1 << 20));
  app.add_option("--tokens", flags.tokens, "At most so many of each answer")->check(CLI::Range(1, 1 << 20));
  app.add_option("--kv-mb", flags.kv_mb, "For KV, in MiB")->check(CLI::Range(1, 1 << 20));
  app.add_flag("--graphs,!--no-graphs", flags.graphs, "Record decode steps as CUDA graphs");
  app.add_flag("--alone", flags.alone, "Answer every prompt once more, alone, and compare bits");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = sluice::Run(flags);
  if (status.ok()) return 0;
  std::cerr << "golden_answers: " << status.message() << "\n";
  return 1;
}
