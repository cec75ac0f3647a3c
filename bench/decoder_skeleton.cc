#include "bench/decoder_skeleton.h"

#include <chrono>
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

void Fill(DType type, uint32_t state, std::vector<uint8_t>& data) {
  if (type == DType::kF32) {
    const float half = 0.5f;
    for (size_t i = 0; i < data.size(); i += sizeof(half)) std::memcpy(&data[i], &half, sizeof(half));
    return;
  }
  if (type == DType::kBF16) {  // a sign, 2^-7 or 2^-6, and seven random bits behind the point
    for (size_t i = 0; i < data.size(); i += 2) {
      const uint16_t value = uint16_t((Next(state) & 0x80ff) | 0x3c00);
      std::memcpy(&data[i], &value, 2);
    }
    return;
  }
  for (uint8_t& b : data) b = uint8_t(Next(state));
  // Small scales at the head of each block; a second half-float there is small as well.
  const uint16_t scale = kernels::F32ToF16(0.002f), minimum = kernels::F32ToF16(-0.015f);
  const size_t block = size_t(kernels::Info(type).block_bytes);
  for (size_t i = 0; i + block <= data.size(); i += block) {
    std::memcpy(&data[i], &scale, 2);
    if (type == DType::kQ4_1 || type == DType::kQ5_1) std::memcpy(&data[i + 2], &minimum, 2);
  }
}

}  // namespace

kernels::HostTensor DecoderSkeleton::Random(DType type, int64_t rows, int64_t cols) {
  const size_t size = size_t(rows) * kernels::RowBytes(type, cols);
  weight_bytes_ += int64_t(size);
  if (next_tensor_ < bytes_.size()) return {type, bytes_[next_tensor_++].data(), rows, cols};
  std::vector<uint8_t>& data = bytes_.emplace_back(size);
  ++next_tensor_;
  Fill(type, uint32_t(bytes_.size()), data);
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

void DecoderSkeleton::AddLayer() {
  const SkeletonShape& s = shape_;
  const int q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  if (s.equal_layers) next_tensor_ = 0;
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

DecoderSkeleton::DecoderSkeleton(const kernels::Backend& backend, const SkeletonShape& s, int max_rows, int max_seqs,
                                 int max_context, int kv_blocks)
    : backend_(backend), shape_(s), max_blocks_(kernels::BlocksFor(max_context, kBlockSize)) {
  const int q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  for (int i = 0; i < s.layers; ++i) AddLayer();
  const kernels::HostTensor embedding = Random(s.head_type, s.vocab, s.hidden);  // tied
  embedding_ = Table(embedding);
  head_ = Linear(embedding);
  final_norm_ = Table(Random(DType::kF32, 1, s.hidden));
  rope_ = Table(Random(DType::kF32, max_context, s.head_dim));

  const kernels::KvLayout layout{s.layers, s.kv_heads, s.head_dim, kBlockSize, backend.kv_dtype()};
  auto pool = backend.NewKvPool(layout, kv_blocks > 0 ? kv_blocks : max_seqs * max_blocks_);
  CHECK(pool.ok()) << pool.status();
  kv_ = *std::move(pool);
  auto context = backend.NewContext({.max_rows = max_rows,
                                     .max_seqs = max_seqs,
                                     .max_logits = max_seqs,
                                     .max_ffn = s.ffn,
                                     .max_hidden = s.hidden,
                                     .max_vocab = s.vocab,
                                     .max_context = max_context,
                                     .max_blocks = max_blocks_,
                                     .num_heads = s.heads,
                                     .head_dim = s.head_dim,
                                     .num_kv_heads = s.kv_heads});
  CHECK(context.ok()) << context.status();
  context_ = *std::move(context);
  const auto activation = [&](int cols, kernels::ActivationUse use = kernels::ActivationUse::kProducts) {
    auto made = context_->NewActivation(cols, use);
    CHECK(made.ok()) << made.status();
    return *std::move(made);
  };
  x_ = activation(s.hidden, kernels::ActivationUse::kResidual);
  q_ = activation(q);
  k_ = activation(kv);
  v_ = activation(kv);
  attn_ = activation(q);
  h_ = activation(s.ffn);
  logits_.resize(size_t(max_seqs) * size_t(s.vocab));
}

double DecoderSkeleton::matmul_flops_per_row() const {
  const double q = double(shape_.heads) * shape_.head_dim, kv = double(shape_.kv_heads) * shape_.head_dim;
  return 2.0 * shape_.layers * shape_.hidden * (2 * q + 2 * kv + 3.0 * shape_.ffn);
}

double DecoderSkeleton::Step(int seqs, int rows_each, int context) {
  std::vector<int32_t> tokens, row_begin{0}, context_len, table(size_t(seqs) * size_t(max_blocks_)), logit_rows;
  const int blocks = kernels::BlocksFor(context + rows_each, kBlockSize);
  CHECK_LE(blocks, max_blocks_);
  CHECK_LE(seqs * blocks, kv_->num_blocks());
  for (int s = 0; s < seqs; ++s) {
    for (int i = 0; i < rows_each; ++i) tokens.push_back((s * 131 + i * 17) % shape_.vocab);
    row_begin.push_back(int32_t(tokens.size()));
    logit_rows.push_back(int32_t(tokens.size()) - 1);
    context_len.push_back(context + rows_each);
    for (int b = 0; b < blocks; ++b) table[size_t(s * max_blocks_ + b)] = (s + 1) * blocks - 1 - b;
  }
  kernels::StepBatch batch{tokens, row_begin, context_len, table, max_blocks_, logit_rows};
  // As answers are drawn by default; where the backend does not, that is no part of the step.
  std::vector<kernels::SampleRow> draws(logit_rows.size(), {.kind = kernels::SampleKind::kDraw, .temperature = 1.0f});
  for (size_t i = 0; i < draws.size(); ++i) draws[i].seed = i;
  std::vector<kernels::SampledToken> drawn(draws.size());
  const kernels::SampleBatch sampling{.rows = draws, .edits = {}, .tokens = drawn, .tops = {}};
  if (context_->sample_limits().rows > 0) batch.sampling = &sampling;
  const auto start = std::chrono::steady_clock::now();
  context_->BeginStep(batch, kv_->layout());
  if (!context_->Replay(logits_.data(), nullptr)) {
    const bool recorded = context_->BeginCapture();
    IssuePhases();
    if (recorded) context_->EndCapture();
  }
  const std::chrono::duration<double> issued = std::chrono::steady_clock::now() - start;
  const absl::Status status = context_->Finish();
  CHECK(status.ok()) << status;
  return issued.count();
}

void DecoderSkeleton::IssuePhases() {
  kernels::Context& c = *context_;
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
  c.Sample({.vocab = shape_.vocab});
}

}  // namespace sluice::bench
