// A tiny random llama model as a GGUF file: real in every respect but the meaning of its weights.
//
// Deterministic in its spec. Weights are scaled so that logits are lively: greedy answers wander, and sampling at
// temperature 1 is neither flat nor certain. The vocabulary is byte-level BPE over all 256 bytes with a few merges and
// the control tokens <|endoftext|> (0), <|im_start|> (1, bos) and <|im_end|> (2, eos), so that any text encodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/files/testing/gguf_writer.h"
#include "kernels/dtype.h"

namespace sluice::engine {

struct TinyModelSpec {
  int layers = 2;
  int heads = 9;
  int kv_heads = 3;
  int head_dim = 32;
  int hidden = 0;  // 0: heads * head_dim
  int ffn = 768;
  int context = 2048;
  int window = 0;  // 0: the file says nothing of one
  uint64_t seed = 1;
  bool tied = false;          // no output.weight: the embedding is the head
  bool rope_factors = false;  // with a rope_freqs.weight
  // Each matrix takes the least used type whose blocks divide its rows. The default width (288) takes the types of
  // 32-element blocks, and the K types in ffn_down only; a width of 256 or 512 takes all everywhere.
  std::vector<kernels::DType> types = {kernels::DType::kQ8_0, kernels::DType::kQ4_1, kernels::DType::kQ4_K,
                                       kernels::DType::kQ5_0, kernels::DType::kF16,  kernels::DType::kQ6_K,
                                       kernels::DType::kQ4_0, kernels::DType::kQ5_1, kernels::DType::kQ5_K,
                                       kernels::DType::kBF16, kernels::DType::kF32};
};

// INVALID_ARGUMENT if no type of the spec fits a matrix, or a number isn't positive.
absl::StatusOr<GgufWriter> MakeTinyModel(const TinyModelSpec& spec);
absl::Status WriteTinyModel(const std::string& path, const TinyModelSpec& spec);

}  // namespace sluice::engine
