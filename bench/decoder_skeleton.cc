#include "bench/decoder_skeleton.h"

#include <cmath>
#include <cstring>

#include "glog/logging.h"
#include "kernels/dequant.h"

namespace sluice::bench {
namespace {

using kernels::DType;

constexpr int kBlockSize = 16;

// Cheap and repeatable; quality does not matter here.
uint32_t Next(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

}  // namespace

kernels::HostTensor DecoderSkeleton::Random(DType type, int64_t rows, int64_t cols) {
  const auto& info = kernels::Info(type);
  const size_t row_bytes = kernels::RowBytes(type, cols);
  std::vector<uint8_t>& data = bytes_.emplace_back(size_t(rows) * row_bytes);
  uint32_t state = uint32_t(bytes_.size());
  if (type == DType::kF32) {
    std::vector<float> ones(size_t(rows * cols), 0.5f);
    std::memcpy(data.data(), ones.data(), data.size());
  } else {
    for (uint8_t& b : data) b = uint8_t(Next(state));
    // Small scales at the head of each block; a second half-float there is small as well.
    const uint16_t scale = kernels::F32ToF16(0.002f), minimum = kernels::F32ToF16(-0.015f);
    for (size_t i = 0; i + size_t(info.block_bytes) <= data.size(); i += size_t(info.block_bytes)) {
      std::memcpy(&data[i], &scale, 2);
      if (type == DType::kQ4_1 || type == DType::kQ5_1) std::memcpy(&data[i + 2], &minimum, 2);
    }
  }
  weight_bytes_ += int64_t(data.size());
  return {type, data.data(), rows, cols};
}

std::unique_ptr<kernels::Weight> DecoderSkeleton::Table(const kernels::HostTensor& tensor) const {
  auto packed = backend_.PackTable(tensor);
  CHECK(packed.ok()) << packed.status();
  return *std::move(packed);
}

std::unique_ptr<kernels::Weight> DecoderSkeleton::Linear(const kernels::HostTensor& tensor) const {
  auto packed = backend_.PackLinear(tensor);
  CHECK(packed.ok()) << packed.status();
  return *std::move(packed);
}

DecoderSkeleton::DecoderSkeleton(const kernels::Backend& backend, const SkeletonShape& s, int max_rows, int max_seqs,
                                 int max_context)
    : backend_(backend), shape_(s), max_blocks_(kernels::BlocksFor(max_context, kBlockSize)) {
  const int q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  for (int i = 0; i < s.layers; ++i) {
    Layer& l = layers_.emplace_back();
    l.norm1 = Table(Random(DType::kF32, 1, s.hidden));
    l.wq = Linear(Random(s.type, q, s.hidden));
    l.wk = Linear(Random(s.type, kv, s.hidden));
    l.wv = Linear(Random(s.type, kv, s.hidden));
    l.wo = Linear(Random(s.type, s.hidden, q));
    l.norm2 = Table(Random(DType::kF32, 1, s.hidden));
    l.gate = Linear(Random(s.type, s.ffn, s.hidden));
    l.up = Linear(Random(s.type, s.ffn, s.hidden));
    l.down = Linear(Random(s.type, s.hidden, s.ffn));
  }
  const kernels::HostTensor embedding = Random(s.head_type, s.vocab, s.hidden);  // tied
  embedding_ = Table(embedding);
  head_ = Linear(embedding);
  final_norm_ = Table(Random(DType::kF32, 1, s.hidden));
  rope_ = Table(Random(DType::kF32, max_context, s.head_dim));

  const kernels::KvLayout layout{s.layers, s.kv_heads, s.head_dim, kBlockSize, backend.kv_dtype()};
  auto pool = backend.NewKvPool(layout, max_seqs * max_blocks_);
  CHECK(pool.ok()) << pool.status();
  kv_ = *std::move(pool);
  auto context = backend.NewContext(
      {.max_rows = max_rows, .max_seqs = max_seqs, .max_logits = max_seqs, .max_ffn = s.ffn, .max_hidden = s.hidden});
  CHECK(context.ok()) << context.status();
  context_ = *std::move(context);
  const auto activation = [&](int cols) {
    auto made = context_->NewActivation(cols, kernels::ActivationUse::kProducts);
    CHECK(made.ok()) << made.status();
    return *std::move(made);
  };
  x_ = activation(s.hidden);
  q_ = activation(q);
  k_ = activation(kv);
  v_ = activation(kv);
  attn_ = activation(q);
  logits_.resize(size_t(max_seqs) * size_t(s.vocab));
}

double DecoderSkeleton::matmul_flops_per_row() const {
  const double q = double(shape_.heads) * shape_.head_dim, kv = double(shape_.kv_heads) * shape_.head_dim;
  return 2.0 * shape_.layers * shape_.hidden * (2 * q + 2 * kv + 3.0 * shape_.ffn);
}

void DecoderSkeleton::Step(int seqs, int rows_each, int context) {
  std::vector<int32_t> tokens, row_begin{0}, context_len, table, logit_rows;
  for (int s = 0; s < seqs; ++s) {
    for (int i = 0; i < rows_each; ++i) tokens.push_back((s * 131 + i * 17) % shape_.vocab);
    row_begin.push_back(int32_t(tokens.size()));
    logit_rows.push_back(int32_t(tokens.size()) - 1);
    context_len.push_back(context + rows_each);
    for (int b = 0; b < max_blocks_; ++b) table.push_back(s * max_blocks_ + (b * 7 + 3) % max_blocks_);
  }
  const kernels::StepBatch batch{tokens, row_begin, context_len, table, max_blocks_, logit_rows};
  kernels::Context& c = *context_;
  c.BeginStep(batch, kv_->layout());
  c.Embed({.table = embedding_.get(), .x = x_.get()});
  for (int i = 0; i < shape_.layers; ++i) {
    const Layer& l = layers_[size_t(i)];
    c.NormQkv({.x = x_.get(),
               .norm = l.norm1.get(),
               .wq = l.wq.get(),
               .wk = l.wk.get(),
               .wv = l.wv.get(),
               .q = q_.get(),
               .k = k_.get(),
               .v = v_.get()});
    c.RopeKv({.q = q_.get(),
              .k = k_.get(),
              .v = v_.get(),
              .rope = rope_.get(),
              .rotary_dim = shape_.head_dim,
              .kv = kv_.get(),
              .layer = i});
    c.Attention({.q = q_.get(),
                 .out = attn_.get(),
                 .kv = kv_.get(),
                 .layer = i,
                 .num_heads = shape_.heads,
                 .scale = 1.0f / std::sqrt(float(shape_.head_dim))});
    c.Project({.in = attn_.get(), .w = l.wo.get(), .x = x_.get()});
    c.GateUp({.x = x_.get(), .norm = l.norm2.get(), .gate = l.gate.get(), .up = l.up.get(), .h = h_.get()});
    c.Project({.in = h_.get(), .w = l.down.get(), .x = x_.get()});
  }
  c.Head({.x = x_.get(), .norm = final_norm_.get(), .head = head_.get(), .logits = logits_.data()});
  CHECK(c.Finish().ok());
}

}  // namespace sluice::bench
