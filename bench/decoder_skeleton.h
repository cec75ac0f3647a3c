// A decoder of given shapes with random weights that drives the phases of a backend in the order of a real model: what
// the kernels alone cost, without engine, sampling or files.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace sluice::bench {

struct SkeletonShape {
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  kernels::DType type;       // of the layers' matrices
  kernels::DType head_type;  // of the tied embedding
  // Every layer is packed from the same numbers: of a model that a host has no room for.
  bool equal_layers = false;
};

// SmolLM2-135M as the Q4_1 file stores it.
inline constexpr SkeletonShape kSmolLm135M = {
    30, 576, 9, 3, 64, 1536, 49152, kernels::DType::kQ4_1, kernels::DType::kQ8_0};

class DecoderSkeleton {
 public:
  // CHECKs: this is a benchmark. Bytes of all weights, as stored, in weight_bytes(). kv_blocks of 16 tokens; 0: enough
  // for all of them at once.
  DecoderSkeleton(const kernels::Backend& backend, const SkeletonShape& shape, int max_rows, int max_seqs,
                  int max_context, int kv_blocks = 0);

  // One step: each of `seqs` sequences adds `rows_each` tokens after `context` ones; logits for the last of each.
  // Recorded and replayed where the backend does that. Returns the seconds up to the wait for its results.
  double Step(int seqs, int rows_each, int context);

  int64_t weight_bytes() const { return weight_bytes_; }
  double matmul_flops_per_row() const;  // layers only

 private:
  struct Layer {
    std::unique_ptr<kernels::Weight> norm1, wq, wk, wv, wo, norm2, gate, up, down;
  };

  kernels::HostTensor Random(kernels::DType type, int64_t rows, int64_t cols);  // kept in bytes_
  std::unique_ptr<kernels::Weight> Table(const kernels::HostTensor& tensor) const;
  std::unique_ptr<kernels::Weight> Linear(const kernels::HostTensor& tensor) const;
  void AddLayer();
  void IssuePhases();

  const kernels::Backend& backend_;
  const SkeletonShape shape_;
  const int max_blocks_;
  int64_t weight_bytes_ = 0;
  std::vector<std::vector<uint8_t>> bytes_;
  size_t next_tensor_ = 0;  // in bytes_, of those that are used again
  std::vector<Layer> layers_;
  std::unique_ptr<kernels::Weight> embedding_, head_, final_norm_, rope_;
  std::unique_ptr<kernels::KvPool> kv_;
  std::unique_ptr<kernels::Context> context_;
  std::unique_ptr<kernels::Activation> x_, q_, k_, v_, attn_, h_;
  std::vector<float> logits_;
};

}  // namespace sluice::bench
