// make_tiny_model OUT.gguf: writes the model of tiny_model.h for tests that run real processes.
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/files/testing/tiny_model.h"

int main(int argc, char** argv) {
  sluice::engine::TinyModelSpec spec;
  std::string path;
  std::vector<std::string> types;
  CLI::App app("Writes a tiny random llama model as a GGUF file");
  app.add_option("out", path, "the file to write")->required();
  app.add_option("--seed", spec.seed, "seed of the weights")->capture_default_str();
  app.add_option("--layers", spec.layers)->capture_default_str();
  app.add_option("--heads", spec.heads)->capture_default_str();
  app.add_option("--kv-heads", spec.kv_heads)->capture_default_str();
  app.add_option("--head-dim", spec.head_dim)->capture_default_str();
  app.add_option("--hidden", spec.hidden, "0: heads x head-dim")->capture_default_str();
  app.add_option("--ffn", spec.ffn)->capture_default_str();
  app.add_option("--context", spec.context)->capture_default_str();
  app.add_option("--types", types, "storage types, spread over the matrices, such as Q8_0,Q4_1")->delimiter(',');
  app.add_flag("--tied", spec.tied, "use the embedding as the head");
  app.add_flag("--rope-factors", spec.rope_factors, "with a rope_freqs.weight");
  CLI11_PARSE(app, argc, argv);
  if (!types.empty()) spec.types.clear();
  for (const std::string& name : types) {
    const auto type = sluice::kernels::DTypeFromName(name);
    if (!type.has_value()) {
      std::fprintf(stderr, "make_tiny_model: --types: unknown type %s\n", name.c_str());
      return 2;
    }
    spec.types.push_back(*type);
  }
  const absl::Status status = sluice::engine::WriteTinyModel(path, spec);
  if (!status.ok()) {
    std::fprintf(stderr, "make_tiny_model: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
