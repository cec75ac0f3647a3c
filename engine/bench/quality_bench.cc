// What a mode of arithmetic costs in quality: perplexity of real texts against the f32 reference, the divergence of its
// distributions (KL of f32 against the mode, nats per token) and how often both have the same most likely token.
// Windows of 1,024 tokens, one a file, each computed from nothing; the perplexity's change is paired per window.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/files/model_file.h"
#include "engine/model/decoder.h"
#include "engine/text/tokenizer.h"
#include "kernels/cpu/cpu_backend.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

constexpr int kChunk = 128, kBlock = 16;

struct Flags {
  std::string model, texts = "bench/quality_texts.txt";
  std::vector<std::string> compute = {"int8", "int8+kv8"};
  int threads = 2, window = 1024, windows = 1000;
  bool json = false;
};

absl::StatusOr<std::vector<std::vector<int32_t>>> Windows(const Flags& flags, const Tokenizer& tokenizer) {
  std::ifstream list(flags.texts);
  if (!list) return absl::NotFoundError(absl::StrCat("cannot read ", flags.texts));
  std::vector<std::vector<int32_t>> windows;
  for (std::string path; std::getline(list, path) && int(windows.size()) < flags.windows;) {
    if (path.empty() || path[0] == '#') continue;
    std::ifstream file(path);
    if (!file) return absl::NotFoundError(absl::StrCat("cannot read the text ", path));
    std::stringstream text;
    text << file.rdbuf();
    std::vector<int32_t> tokens = tokenizer.Encode(text.str(), SpecialText::kPlain);
    if (int(tokens.size()) < flags.window) return absl::InvalidArgumentError(absl::StrCat(path, " is too short"));
    const size_t skip = std::min<size_t>(1000, tokens.size() - size_t(flags.window));  // past names and licences
    windows.emplace_back(tokens.begin() + int64_t(skip), tokens.begin() + int64_t(skip) + flags.window);
  }
  return windows;
}

// One mode's decoder; gives the logits of a window chunk by chunk.
struct Mode {
  std::string name;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<kernels::KvPool> kv;

  absl::Status Chunk(const std::vector<int32_t>& window, int begin, int count, std::vector<float>& logits) const {
    const int blocks = kernels::BlocksFor(int64_t(window.size()), kBlock);
    std::vector<int32_t> table, rows;
    for (int i = 0; i < blocks; ++i) table.push_back(i);
    for (int i = 0; i < count; ++i) rows.push_back(i);
    const std::vector<int32_t> tokens(window.begin() + begin, window.begin() + begin + count);
    const std::vector<int32_t> row_begin = {0, count}, context = {begin + count};
    return decoder->Forward({tokens, row_begin, context, table, blocks, rows}, *kv, logits.data());
  }
};

absl::StatusOr<Mode> MakeMode(const ModelFile& file, const std::string& name, const Flags& flags) {
  Mode mode;
  mode.name = name;
  const bool kv8 = name.ends_with("+kv8");  // K and V in int8
  const std::string compute = kv8 ? name.substr(0, name.size() - 4) : name;
  kernels::CpuOptions options{.threads = flags.threads, .compute = *kernels::CpuComputeFromName(compute)};
  if (kv8) options.kv = kernels::KvDType::kInt8;
  auto backend = kernels::NewCpuBackend(options);
  if (!backend.ok()) return backend.status();
  mode.backend = *std::move(backend);
  auto decoder = Decoder::Create(file, *mode.backend, {kChunk, 1, kChunk, flags.window});
  if (!decoder.ok()) return decoder.status();
  mode.decoder = *std::move(decoder);
  auto kv = mode.backend->NewKvPool(mode.decoder->kv_layout(kBlock), kernels::BlocksFor(flags.window, kBlock));
  if (!kv.ok()) return kv.status();
  mode.kv = *std::move(kv);
  return mode;
}

struct Scores {
  double nats = 0, kl = 0;
  int64_t tokens = 0, same_top = 0;
  void Add(const Scores& o) {
    nats += o.nats;
    kl += o.kl;
    tokens += o.tokens;
    same_top += o.same_top;
  }
};

// log(sum(exp(logits)))
double LogSum(const float* logits, int vocab) {
  const double max = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int i = 0; i < vocab; ++i) sum += std::exp(double(logits[i]) - max);
  return max + std::log(sum);
}

Scores ScoreRow(const float* reference, const float* mode, int vocab, int32_t next) {
  const double log_reference = LogSum(reference, vocab), log_mode = LogSum(mode, vocab);
  Scores s;
  s.tokens = 1;
  s.nats = log_mode - double(mode[next]);
  for (int i = 0; i < vocab; ++i) {
    const double p = double(reference[i]) - log_reference;
    if (p > -30) s.kl += std::exp(p) * (p - (double(mode[i]) - log_mode));
  }
  s.same_top =
      std::max_element(reference, reference + vocab) - reference == std::max_element(mode, mode + vocab) - mode;
  return s;
}

// Every mode's scores of one window; the first mode is the reference.
absl::Status ScoreWindow(const std::vector<Mode>& modes, const std::vector<int32_t>& window, int vocab,
                         std::vector<Scores>& scores) {
  std::vector<std::vector<float>> logits(modes.size(), std::vector<float>(size_t(kChunk) * size_t(vocab)));
  scores.assign(modes.size(), {});
  for (int begin = 0; begin < int(window.size()); begin += kChunk) {
    const int count = std::min(kChunk, int(window.size()) - begin);
    for (size_t m = 0; m < modes.size(); ++m) {
      if (absl::Status s = modes[m].Chunk(window, begin, count, logits[m]); !s.ok()) return s;
    }
    for (int i = 0; i < count && begin + i + 1 < int(window.size()); ++i) {
      const size_t at = size_t(i) * size_t(vocab);
      for (size_t m = 0; m < modes.size(); ++m) {
        scores[m].Add(ScoreRow(&logits[0][at], &logits[m][at], vocab, window[size_t(begin + i + 1)]));
      }
    }
  }
  return absl::OkStatus();
}

// Mean and standard error.
std::pair<double, double> MeanAndError(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double mean = sum / double(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double n = double(values.size());
  return {mean, n > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

absl::Status Run(const Flags& flags) {
  auto file = OpenModel(flags.model);
  if (!file.ok()) return file.status();
  auto tokenizer = Tokenizer::Create((*file)->tokenizer());
  if (!tokenizer.ok()) return tokenizer.status();
  auto windows = Windows(flags, **tokenizer);
  if (!windows.ok()) return windows.status();
  std::vector<Mode> modes;
  std::vector<std::string> names = {"f32"};
  names.insert(names.end(), flags.compute.begin(), flags.compute.end());
  for (const std::string& name : names) {
    auto mode = MakeMode(**file, name, flags);
    if (!mode.ok()) return mode.status();
    modes.push_back(*std::move(mode));
  }
  std::vector<Scores> total(modes.size());
  std::vector<std::vector<double>> change(modes.size());  // of the mean loss of a window, in nats
  for (size_t w = 0; w < windows->size(); ++w) {
    std::vector<Scores> scores;
    if (absl::Status s = ScoreWindow(modes, (*windows)[w], (*file)->config().vocab, scores); !s.ok()) return s;
    for (size_t m = 0; m < modes.size(); ++m) {
      total[m].Add(scores[m]);
      change[m].push_back((scores[m].nats - scores[0].nats) / double(scores[m].tokens));
    }
    std::fprintf(stderr, "\r%zu of %zu windows", w + 1, windows->size());
  }
  std::fprintf(stderr, "\n");
  nlohmann::json out = {{"windows", windows->size()}, {"window", flags.window}};
  std::printf("%-14s %11s %22s %10s %9s\n", "numerics", "perplexity", "change", "KL", "top-1");
  for (size_t m = 0; m < modes.size(); ++m) {
    const double n = double(total[m].tokens);
    const auto [mean, error] = MeanAndError(change[m]);
    const std::string id(modes[m].backend->numerics_id());
    std::printf("%-14s %11.4f %+10.3f %% ± %.3f %% %10.5f %8.2f %%\n", id.c_str(), std::exp(total[m].nats / n),
                100 * std::expm1(mean), 100 * error, total[m].kl / n, 100 * double(total[m].same_top) / n);
    out["modes"][id] = {{"perplexity", std::exp(total[m].nats / n)},
                        {"perplexity_change", std::expm1(mean)},
                        {"standard_error", error},
                        {"kl", total[m].kl / n},
                        {"same_top", double(total[m].same_top) / n}};
  }
  if (flags.json) std::cout << out.dump(1) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  CLI::App app("Quality of the modes of arithmetic against f32, on real texts");
  sluice::engine::Flags flags;
  app.add_option("model", flags.model, "GGUF file")->required();
  app.add_option("--texts", flags.texts, "File that lists the texts");
  app.add_option("--compute", flags.compute, "Modes beside f32")
      ->delimiter(',')
      ->check(CLI::IsMember({"int8", "int8+kv8", "native", "bf16"}));
  app.add_option("--threads", flags.threads, "Compute threads")->check(CLI::Range(1, 1024));
  app.add_option("--windows", flags.windows, "At most so many texts")->check(CLI::Range(1, 1000));
  app.add_option("--window", flags.window, "Tokens of each")->check(CLI::Range(2, 8192));
  app.add_flag("--json", flags.json, "Print a JSON object as well");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = sluice::engine::Run(flags);
  if (status.ok()) return 0;
  std::cerr << "quality_bench: " << status.message() << "\n";
  return 1;
}
