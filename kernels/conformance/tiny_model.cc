#include "kernels/conformance/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "kernels/dequant.h"

namespace sluice::kernels::conformance {
namespace {

// Where a block keeps its half-float scale and minimum, and how large codes times scales get: a random block is then
// random codes under scales that bring values to about 1.
struct BlockScales {
  int scale_at;
  int minimum_at;  // -1: none
  float scale, minimum;
};

BlockScales ScalesOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {0, -1, 0.2f, 0};
    case DType::kQ4_1:
      return {0, 2, 0.2f, -1.5f};
    case DType::kQ5_0:
      return {0, -1, 0.1f, 0};
    case DType::kQ5_1:
      return {0, 2, 0.1f, -1.5f};
    case DType::kQ8_0:
      return {0, -1, 0.012f, 0};
    case DType::kQ4_K:
      return {0, 2, 0.008f, 0.05f};
    case DType::kQ5_K:
      return {0, 2, 0.004f, 0.05f};
    case DType::kQ6_K:
      return {208, -1, 0.001f, 0};
    default:
      return {-1, -1, 0, 0};
  }
}

void PutHalf(uint8_t* at, float value) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(at, &bits, sizeof bits);
}

void FillPlain(Matrix& m, float size, std::mt19937& rng) {
  std::normal_distribution<float> normal(0.0f, size);
  for (int64_t i = 0; i < m.rows * m.cols; ++i) {
    const float value = normal(rng);
    const uint16_t half = m.type == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
    if (m.type == DType::kF32) {
      std::memcpy(&m.bytes[size_t(i) * 4], &value, 4);
    } else {
      std::memcpy(&m.bytes[size_t(i) * 2], &half, 2);
    }
  }
}

Matrix Around(float centre, int64_t cols, std::mt19937& rng) {
  Matrix m = RandomMatrix(DType::kF32, 1, cols, rng);
  for (int64_t i = 0; i < cols; ++i) {
    float v;
    std::memcpy(&v, &m.bytes[size_t(i) * 4], 4);
    v += centre;
    std::memcpy(&m.bytes[size_t(i) * 4], &v, 4);
  }
  return m;
}

Matrix RopeTable(int positions, int rotary_dim) {
  Matrix m{DType::kF32, positions, rotary_dim, std::vector<uint8_t>(size_t(positions) * size_t(rotary_dim) * 4)};
  const int pairs = rotary_dim / 2;
  for (int p = 0; p < positions; ++p) {
    for (int i = 0; i < pairs; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / rotary_dim);
      const float c = float(std::cos(angle)), s = float(std::sin(angle));
      std::memcpy(&m.bytes[size_t(p * rotary_dim + i) * 4], &c, 4);
      std::memcpy(&m.bytes[size_t(p * rotary_dim + pairs + i) * 4], &s, 4);
    }
  }
  return m;
}

template <class T>
T Take(absl::StatusOr<T> made) {
  CHECK(made.ok()) << made.status();
  return *std::move(made);
}

}  // namespace

std::string TinyShape::ToString() const {
  return absl::StrCat("hidden ", hidden, ", heads ", heads, "/", kv_heads, " x ", head_dim, ", rotary ", rotary_dim,
                      ", ffn ", ffn, ", vocab ", vocab, ", blocks of ", block_size, ", type ",
                      std::string(Info(type).name), ", rope ", int(rope), ", act ", int(activation), ", bias ", bias);
}

std::vector<float> Matrix::Row(int64_t i) const {
  std::vector<float> out(static_cast<size_t>(cols));
  DequantizeRow(type, bytes.data() + size_t(i) * RowBytes(type, cols), cols, out.data());
  return out;
}

Matrix RandomMatrix(DType type, int64_t rows, int64_t cols, std::mt19937& rng) {
  Matrix m{type, rows, cols, std::vector<uint8_t>(size_t(rows) * RowBytes(type, cols))};
  const float size = 1.0f / std::sqrt(float(cols));
  const BlockScales scales = ScalesOf(type);
  if (scales.scale_at < 0) {
    FillPlain(m, size, rng);
    return m;
  }
  for (uint8_t& b : m.bytes) b = uint8_t(rng());
  std::uniform_real_distribution<float> vary(0.5f, 1.5f);
  const auto block = size_t(Info(type).block_bytes);
  for (size_t i = 0; i < m.bytes.size(); i += block) {
    PutHalf(&m.bytes[i + size_t(scales.scale_at)], scales.scale * size * vary(rng));
    if (scales.minimum_at >= 0) {
      PutHalf(&m.bytes[i + size_t(scales.minimum_at)], scales.minimum * size * vary(rng));
    }
  }
  return m;
}

TinyWeights::TinyWeights(const TinyShape& s, int max_positions, uint32_t seed) : shape(s) {
  std::mt19937 rng(seed);
  const auto matrix = [&](int rows, int cols) { return RandomMatrix(s.type, rows, cols, rng); };
  for (int i = 0; i < s.layers; ++i) {
    Layer& l = layers.emplace_back();
    l.norm1 = Around(1.0f, s.hidden, rng);
    l.wq = matrix(s.q_dim(), s.hidden);
    l.wk = matrix(s.kv_dim(), s.hidden);
    l.wv = matrix(s.kv_dim(), s.hidden);
    l.bq = Around(0.1f, s.q_dim(), rng);
    l.bk = Around(-0.1f, s.kv_dim(), rng);
    l.bv = Around(0.0f, s.kv_dim(), rng);
    l.wo = matrix(s.hidden, s.q_dim());
    l.norm2 = Around(1.0f, s.hidden, rng);
    l.gate = matrix(s.ffn, s.hidden);
    l.up = matrix(s.ffn, s.hidden);
    l.down = matrix(s.hidden, s.ffn);
  }
  embedding = matrix(s.vocab, s.hidden);
  final_norm = Around(1.0f, s.hidden, rng);
  rope = RopeTable(max_positions, s.rotary_dim);
}

TinyModel::TinyModel(const Backend& backend, const TinyWeights& weights, std::vector<std::vector<int32_t>> tokens,
                     uint32_t block_seed)
    : w_(weights),
      tokens_(std::move(tokens)),
      computed_(tokens_.size()),
      logits_(tokens_.size()),
      draft_logits_(tokens_.size()) {
  const TinyShape& s = w_.shape;
  int rows = 0;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    rows += int(tokens_[i].size()) + kMaxDrafts;
    max_blocks_ = std::max(max_blocks_, BlocksFor(int64_t(tokens_[i].size()) + kMaxDrafts, s.block_size));
    logits_[i].resize(tokens_[i].size());
  }
  const int num_blocks = int(tokens_.size()) * max_blocks_ + 1;
  std::vector<int32_t> order(static_cast<size_t>(num_blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(block_seed));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto first = order.begin() + int64_t(i) * max_blocks_;
    blocks_.emplace_back(first, first + max_blocks_);
  }

  const auto table = [&](const Matrix& m) { return Take(backend.PackTable(m.tensor())); };
  const auto linear = [&](const Matrix& m) { return Take(backend.PackLinear(m.tensor())); };
  for (const TinyWeights::Layer& l : w_.layers) {
    layers_.push_back({table(l.norm1), linear(l.wq), linear(l.wk), linear(l.wv), table(l.bq), table(l.bk), table(l.bv),
                       linear(l.wo), table(l.norm2), linear(l.gate), linear(l.up), linear(l.down)});
  }
  embedding_ = table(w_.embedding);
  head_ = linear(w_.embedding);
  final_norm_ = table(w_.final_norm);
  rope_ = table(w_.rope);
  kv_ = Take(backend.NewKvPool({s.layers, s.kv_heads, s.head_dim, s.block_size, backend.kv_dtype()}, num_blocks));
  context_ = Take(backend.NewContext({.max_rows = rows,
                                      .max_seqs = int(tokens_.size()),
                                      .max_logits = rows,
                                      .max_ffn = s.ffn,
                                      .max_hidden = s.hidden,
                                      .max_vocab = s.vocab,
                                      .max_context = max_blocks_ * s.block_size,
                                      .max_blocks = max_blocks_,
                                      .num_heads = s.heads,
                                      .head_dim = s.head_dim,
                                      .num_kv_heads = s.kv_heads}));
  x_ = Take(context_->NewActivation(s.hidden, ActivationUse::kResidual));
  q_ = Take(context_->NewActivation(s.q_dim(), ActivationUse::kProducts));
  k_ = Take(context_->NewActivation(s.kv_dim(), ActivationUse::kProducts));
  v_ = Take(context_->NewActivation(s.kv_dim(), ActivationUse::kProducts));
  attn_ = Take(context_->NewActivation(s.q_dim(), ActivationUse::kProducts));
  h_ = Take(context_->NewActivation(s.ffn, ActivationUse::kProducts));
}

void TinyModel::RunLayers() {
  const TinyShape& s = w_.shape;
  Context& c = *context_;
  for (int i = 0; i < s.layers; ++i) {
    const Packed& l = layers_[size_t(i)];
    c.NormQkv({.x = x_.get(),
               .norm = l.norm1.get(),
               .eps = w_.eps,
               .wq = l.wq.get(),
               .wk = l.wk.get(),
               .wv = l.wv.get(),
               .bq = s.bias ? l.bq.get() : nullptr,
               .bk = s.bias ? l.bk.get() : nullptr,
               .bv = s.bias ? l.bv.get() : nullptr,
               .q = q_.get(),
               .k = k_.get(),
               .v = v_.get()});
    c.RopeKv({.q = q_.get(),
              .k = k_.get(),
              .v = v_.get(),
              .rope = rope_.get(),
              .rotary_dim = s.rotary_dim,
              .style = s.rope,
              .kv = kv_.get(),
              .layer = i});
    c.Attention({.q = q_.get(),
                 .out = attn_.get(),
                 .kv = kv_.get(),
                 .layer = i,
                 .num_heads = s.heads,
                 .scale = 1.0f / std::sqrt(float(s.head_dim))});
    c.Project({.in = attn_.get(), .w = l.wo.get(), .x = x_.get()});
    c.GateUp({.x = x_.get(),
              .norm = l.norm2.get(),
              .eps = w_.eps,
              .gate = l.gate.get(),
              .up = l.up.get(),
              .activation = s.activation,
              .h = h_.get()});
    c.Project({.in = h_.get(), .w = l.down.get(), .x = x_.get()});
  }
}

void TinyModel::IssuePhases(float* logits, float* maxima) {
  context_->Embed({.table = embedding_.get(), .scale = 1.5f, .x = x_.get()});
  RunLayers();
  context_->Head({.x = x_.get(),
                  .norm = final_norm_.get(),
                  .eps = w_.eps,
                  .head = head_.get(),
                  .logits = logits,
                  .maxima = maxima});
}

void TinyModel::Step(const std::vector<Piece>& pieces) {
  std::vector<int32_t> tokens, row_begin{0}, context_len, table, logit_rows;
  std::vector<std::vector<float>*> wanted;  // where each row of logits goes
  for (const Piece& piece : pieces) {
    const auto seq = size_t(piece.seq);
    for (int i = 0; i < piece.count; ++i) {
      const int position = computed_[seq]++;
      if (!wanted_ || wanted_(piece.seq, position)) {
        wanted.push_back(&logits_[seq][size_t(position)]);
        logit_rows.push_back(int32_t(tokens.size()));
      }
      tokens.push_back(tokens_[seq][size_t(position)]);
    }
    CHECK(piece.drafts.size() <= kMaxDrafts);
    draft_logits_[seq].resize(piece.drafts.size());
    for (size_t i = 0; i < piece.drafts.size(); ++i) {
      wanted.push_back(&draft_logits_[seq][i]);
      logit_rows.push_back(int32_t(tokens.size()));
      tokens.push_back(piece.drafts[i]);
    }
    row_begin.push_back(int32_t(tokens.size()));
    context_len.push_back(computed_[seq] + int32_t(piece.drafts.size()));
    table.insert(table.end(), blocks_[seq].begin(), blocks_[seq].end());
    if (unused_entry_)
      std::fill(table.end() - max_blocks_ + BlocksFor(context_len.back(), w_.shape.block_size), table.end(),
                *unused_entry_);
  }
  std::vector<float> logits(wanted.size() * size_t(w_.shape.vocab));
  context_->BeginStep({tokens, row_begin, context_len, table, max_blocks_, logit_rows}, kv_->layout());
  std::vector<float> maxima(wanted.size() * size_t(NumLogitBlocks(w_.shape.vocab)));
  if (!context_->Replay(logits.data(), maxima.data())) {
    const bool capturing = context_->BeginCapture();
    IssuePhases(logits.data(), maxima.data());
    if (capturing) context_->EndCapture();
  }
  const absl::Status done = context_->Finish();
  CHECK(done.ok()) << done;
  const int blocks = NumLogitBlocks(w_.shape.vocab);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto from = logits.begin() + int64_t(i) * w_.shape.vocab;
    wanted[i]->assign(from, from + w_.shape.vocab);
    for (int b = 0; b < blocks; ++b) {
      const auto begin = from + b * kLogitBlock, end = std::min(begin + kLogitBlock, from + w_.shape.vocab);
      EXPECT_EQ(maxima[i * size_t(blocks) + size_t(b)], *std::max_element(begin, end)) << "block " << b << " of a row";
    }
  }
}

void TinyModel::RunAlone(int chunk) {
  for (int seq = 0; seq < num_seqs(); ++seq) {
    while (left(seq) > 0) Step({{seq, std::min(chunk, left(seq))}});
  }
}

void TinyModel::RunMixed(std::mt19937& rng, bool drafts) {
  for (;;) {
    std::vector<Piece> pieces;
    bool done = true;
    for (int seq = 0; seq < num_seqs(); ++seq) {
      done = done && left(seq) == 0;
      if (left(seq) == 0 || rng() % 4 == 0) continue;
      const int most = rng() % 2 == 0 ? 1 : left(seq);
      Piece& piece = pieces.emplace_back(Piece{seq, 1 + int(rng() % uint32_t(most))});
      for (uint32_t n = drafts ? rng() % (kMaxDrafts + 1) : 0; n > 0; --n) {
        piece.drafts.push_back(int32_t(rng() % uint32_t(w_.shape.vocab)));
      }
    }
    if (done) return;
    std::shuffle(pieces.begin(), pieces.end(), rng);
    if (!pieces.empty()) Step(pieces);
  }
}

void TinyModel::Share(int seq, int from, int num_blocks, int tokens) {
  CHECK(computed_[size_t(seq)] == 0);
  std::copy_n(blocks_[size_t(from)].begin(), num_blocks, blocks_[size_t(seq)].begin());
  computed_[size_t(seq)] = tokens < 0 ? num_blocks * w_.shape.block_size : tokens;
  CHECK(computed_[size_t(seq)] <= computed_[size_t(from)]);
}

std::vector<uint8_t> TinyModel::ReadFullBlocks(int seq, const std::function<void(void*, const void*, size_t)>& read) {
  const KvLayout& layout = kv_->layout();
  std::vector<uint8_t> all;
  for (int i = 0; i < computed_[size_t(seq)] / layout.block_size; ++i) {
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      const auto* data = static_cast<const uint8_t*>(kv_->layer_data(layer));
      all.resize(all.size() + layout.block_bytes());
      read(all.data() + all.size() - layout.block_bytes(),
           data + layout.offset(blocks_[size_t(seq)][size_t(i)], 0, 0, 0), layout.block_bytes());
    }
  }
  return all;
}

}  // namespace sluice::kernels::conformance
