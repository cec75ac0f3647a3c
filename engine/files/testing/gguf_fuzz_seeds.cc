// gguf_fuzz_seeds FOLDER: writes the corpus that gguf_fuzz starts from, small models that differ in what they carry.
#include <cstdio>
#include <filesystem>
#include <string>

#include "engine/files/testing/tiny_model.h"

namespace {

using sluice::engine::TinyModelSpec;
using sluice::kernels::DType;

TinyModelSpec Smallest() {
  TinyModelSpec spec;
  spec.layers = 1;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 16;
  spec.ffn = 32;
  spec.context = 64;
  spec.types = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0};
  return spec;
}

// Structure without a model: a few bytes, so that mutations hit the fields.
sluice::engine::GgufWriter Bare() {
  sluice::engine::GgufWriter w;
  w.AddU32("general.alignment", 8);
  w.AddStrings("s", {"a", "bc"});
  w.AddI32s("i", {1, 2});
  w.AddRaw("n", 9, std::string("\x09\0\0\0\x01\0\0\0\0\0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0x", 33));
  w.alignment = 8;
  w.AddTensor({"t", {2, 2}, 0, std::string(16, '\0')});
  w.AddTensor({"q", {32}, 2, std::string(18, '\0')});
  return w;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: gguf_fuzz_seeds FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  TinyModelSpec tied = Smallest(), floats = Smallest(), wide = Smallest();
  tied.tied = tied.rope_factors = true;
  floats.types = {DType::kF16, DType::kBF16, DType::kF32};
  wide.heads = 1;
  wide.head_dim = 32;
  wide.hidden = 256;  // what the K types need
  wide.tied = true;
  wide.types = {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ4_0};
  int n = 0;
  for (const TinyModelSpec& spec : {Smallest(), tied, floats, wide}) {
    if (absl::Status s = WriteTinyModel(folder + "/model" + std::to_string(n++), spec); !s.ok()) {
      std::fprintf(stderr, "gguf_fuzz_seeds: %s\n", std::string(s.message()).c_str());
      return 1;
    }
  }
  const std::string bare = Bare().Serialize();
  std::FILE* file = std::fopen((folder + "/bare").c_str(), "wb");
  const bool written = file != nullptr && std::fwrite(bare.data(), 1, bare.size(), file) == bare.size();
  if (file != nullptr) std::fclose(file);
  return written ? 0 : 1;
}
