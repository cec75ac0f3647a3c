// The reference that the decoder is held against: a whole forward pass of a llama-like model in double precision, as
// plain loops over dequantised tensors. Shares no code with kernels/ or engine/model but the dequantisation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/files/model_file.h"

namespace sluice::engine {

class NaiveModel {
 public:
  // Dequantises every tensor. `file` must outlive the model.
  explicit NaiveModel(const ModelFile* file);

  // Logits after every token: [tokens][vocab].
  std::vector<std::vector<double>> Forward(std::span<const int32_t> tokens) const;

 private:
  using Vector = std::vector<double>;
  using Matrix = std::vector<Vector>;  // [rows][cols]

  struct Block {
    Vector attn_norm, ffn_norm;
    Matrix q, k, v, o, gate, up, down;
  };

  Matrix Load(const std::string& name) const;
  Vector Rotate(const Vector& heads, int num_heads, int position) const;
  Vector Attend(const Vector& q, const Matrix& keys, const Matrix& values) const;
  void AddAttention(const Block& block, Matrix& x) const;
  void AddMlp(const Block& block, Matrix& x) const;

  const ModelFile* file_;
  const ModelConfig& config_;
  Matrix embedding_, head_;
  Vector output_norm_;
  std::vector<Block> blocks_;
};

}  // namespace sluice::engine
