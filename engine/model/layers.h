// The kinds of layer that a decoder is a list of: each knows its weights and issues its phases of the backend.
//
// A new kind is a struct with an Issue of the same form and one more alternative of Layer.
#pragma once

#include <memory>
#include <variant>

#include "engine/parallel/tensor_split.h"
#include "kernels/backend.h"

namespace sluice::engine {

// The rows of the step in flight; x is the residual stream, the others are scratch between the phases of a layer.
struct StepRows {
  std::unique_ptr<kernels::Activation> x;     // [rows][hidden]
  std::unique_ptr<kernels::Activation> q;     // [rows][this rank's heads * head_dim]
  std::unique_ptr<kernels::Activation> k;     // [rows][this rank's kv_heads * head_dim]
  std::unique_ptr<kernels::Activation> v;     // [rows][this rank's kv_heads * head_dim]
  std::unique_ptr<kernels::Activation> attn;  // [rows][heads * head_dim]
  std::unique_ptr<kernels::Activation> h;     // [rows][ffn]
};

// This rank of an instance, and how the model is cut among all of them. `split` outlives the layers.
struct RankOfSplit {
  const TensorSplit* split = nullptr;
  int rank = 0;
};

// x += Wo attention(rope(q), rope(k), v), grouped-query, over all earlier tokens.
struct AttentionLayer {
  const kernels::Weight *norm = nullptr, *wq = nullptr, *wk = nullptr, *wv = nullptr, *wo = nullptr;
  const kernels::Weight *bq = nullptr, *bk = nullptr, *bv = nullptr;  // null: none
  const kernels::Weight* rope = nullptr;
  kernels::RopeStyle rope_style = kernels::RopeStyle::kInterleaved;
  int rotary_dim = 0;
  int num_heads = 0;  // of this rank
  float scale = 0.0f;
  float eps = 0.0f;
  int kv_layer = 0;  // in the pool
  RankOfSplit of;

  void Issue(kernels::Context& context, StepRows& rows, kernels::KvPool& kv) const;
};

// x += Wd (act(Wg h) * Wu h)
struct MlpLayer {
  const kernels::Weight *norm = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
  kernels::MlpActivation activation = kernels::MlpActivation::kSilu;
  float eps = 0.0f;
  RankOfSplit of;

  void Issue(kernels::Context& context, StepRows& rows, kernels::KvPool& kv) const;
};

using Layer = std::variant<AttentionLayer, MlpLayer>;

}  // namespace sluice::engine
