#include "kernels/cpu/int8/int8_context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/embed.h"

namespace sluice::kernels::cpu {
namespace {

// So many rows each thread quantises for itself.
constexpr int kOwnRows = 4;

constexpr int64_t kRowGrain = 16;

const CpuWeight* TableOf(const Weight* w) {
  return static_cast<const CpuWeight*>(w);
}
const Int8Weight* LinearOf(const Weight* w) {
  return static_cast<const Int8Weight*>(w);
}
const CpuActivation* Of(const Activation* a) {
  return static_cast<const CpuActivation*>(a);
}

// A row on its way into a product, or an attention item.
int64_t ScratchFloats(int64_t cols, int64_t head_dim) {
  return std::max(PadRow(cols), Bf16AttentionScratchFloats(head_dim));
}

}  // namespace

Int8Context::Int8Context(const ContextLimits& limits, const Int8Kernels& kernels, int threads)
    : limits_(limits),
      kernels_(kernels),
      pool_(threads),
      scratch_(threads, ScratchFloats),
      own_rows_(size_t(threads)) {}

absl::StatusOr<std::unique_ptr<Int8Context>> Int8Context::Create(const ContextLimits& limits,
                                                                 const Int8Kernels& kernels, int threads) {
  if (limits.max_rows <= 0 || limits.max_hidden <= 0 || limits.max_ffn <= 0) {
    return absl::InvalidArgumentError("a context needs max_rows, max_hidden and max_ffn of at least 1");
  }
  std::unique_ptr<Int8Context> context(new Int8Context(limits, kernels, threads));
  auto hidden = ScratchRows::Create(limits.max_rows, limits.max_ffn);
  if (!hidden.ok()) return hidden.status();
  context->hidden_ = *std::move(hidden);
  const int widest = std::max(limits.max_hidden, limits.max_ffn);
  if (auto s = context->HoldRows(widest); !s.ok()) return s;
  if (auto s = context->scratch_.Hold(widest, 128); !s.ok()) return s;
  return context;
}

absl::Status Int8Context::HoldRows(int64_t cols) {
  if (cols <= row_cols_) return absl::OkStatus();
  row_cols_ = cols;
  const auto make = [&](int count, QuantisedRows& to) {
    auto made = QuantisedRows::Create(count, cols);
    if (made.ok()) to = *std::move(made);
    return made.status();
  };
  if (auto s = make(std::max(limits_.max_rows, limits_.max_logits), shared_rows_); !s.ok()) return s;
  for (QuantisedRows& own : own_rows_) {
    if (auto s = make(kOwnRows, own); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Activation>> Int8Context::NewActivation(int cols) {
  if (cols <= 0) return absl::InvalidArgumentError("an activation needs columns");
  if (auto s = HoldRows(cols); !s.ok()) return s;
  if (auto s = scratch_.Hold(cols, 0); !s.ok()) return s;
  return CpuActivation::Create(limits_.max_rows, cols);
}

void Int8Context::BeginStep(const StepBatch& batch, const KvLayout& layout) {
  CHECK_LE(batch.rows(), limits_.max_rows);
  plan_.Begin(batch, layout);
  // Grows in the first step of a layout with very wide heads only.
  const absl::Status grown = scratch_.Hold(0, layout.head_dim);
  CHECK(grown.ok()) << grown;
}

void Int8Context::Embed(const EmbedParams& p) {
  EmbedRows(p, plan_.batch(), kernels_.floats, pool_);
}

void Int8Context::Quantise(int64_t begin, int64_t end, int64_t cols, FillRow fill, float* work,
                           QuantisedRows& to) const {
  for (int64_t i = begin; i < end; ++i) {
    fill(i, work);
    std::fill(work + cols, work + to.work_floats(), 0.0f);
    to.Set(kernels_.int8, i, work);
  }
}

void Int8Context::Linear(int64_t count, const Int8Weight& w, int64_t panels, FillRow fill, Multiply multiply) {
  if (count == 0) return;
  const int64_t cols = w.cols();
  if (count <= kOwnRows) {
    pool_.RunRanges(panels, 1, [&](int64_t begin, int64_t end, int thread) {
      QuantisedRows& own = own_rows_[size_t(thread)];
      own.Use(w);
      Quantise(0, count, cols, fill, scratch_.of(thread), own);
      multiply(own.view(count), begin, end);
    });
    return;
  }
  shared_rows_.Use(w);
  pool_.RunRanges(count, 1, [&](int64_t begin, int64_t end, int thread) {
    Quantise(begin, end, cols, fill, scratch_.of(thread), shared_rows_);
  });
  pool_.RunRanges(panels, 1, [&](int64_t begin, int64_t end, int) { multiply(shared_rows_.view(count), begin, end); });
}

void Int8Context::Matmul(const Weight* w, const Int8Rows& x, float* y, int64_t ld, bool accumulate, int64_t begin,
                         int64_t end) const {
  kernels_.int8.matmul(x, LinearOf(w)->view(), {.y = y, .ld = ld, .bias = nullptr, .accumulate = accumulate}, begin,
                       end);
}

void Int8Context::NormQkv(const NormQkvParams& p) {
  struct Product {
    const Int8Weight* w;
    const Weight* bias;
    const CpuActivation* y;
  };
  const Product products[] = {
      {LinearOf(p.wq), p.bq, Of(p.q)}, {LinearOf(p.wk), p.bk, Of(p.k)}, {LinearOf(p.wv), p.bv, Of(p.v)}};
  int64_t panels[4] = {};  // of all three in a row
  for (int i = 0; i < 3; ++i) panels[i + 1] = panels[i] + products[i].w->panels();
  const CpuActivation* x = Of(p.x);
  const float* norm = TableOf(p.norm)->f32_row(0);
  const auto normed = [&](int64_t i, float* work) {
    kernels_.floats.rms_norm(x->row(i), norm, p.eps, x->cols(), work);
  };
  Linear(rows(), *LinearOf(p.wq), panels[3], normed, [&](const Int8Rows& in, int64_t begin, int64_t end) {
    for (int i = 0; i < 3; ++i) {
      const Product& product = products[i];
      const int64_t first = std::max(begin, panels[i]) - panels[i], last = std::min(end, panels[i + 1]) - panels[i];
      if (first >= last) continue;
      kernels_.int8.matmul(in, product.w->view(),
                           {.y = product.y->row(0),
                            .ld = product.y->ld(),
                            .bias = product.bias ? TableOf(product.bias)->f32_row(0) : nullptr,
                            .accumulate = false},
                           first, last);
    }
  });
}

void Int8Context::RotateAndStore(const RopeKvParams& p, int row, int first_head, int heads, int first_kv_head,
                                 int kv_heads) const {
  const KvLayout& layout = plan_.layout();
  const int dim = layout.head_dim;
  const bool half_split = p.style == RopeStyle::kHalfSplit;
  CHECK_LT(plan_.position(row), p.rope->rows()) << "position past the RoPE table";
  const float* cos_sin = TableOf(p.rope)->f32_row(plan_.position(row));
  float* k = Of(p.k)->row(row) + first_kv_head * dim;
  const float* v = Of(p.v)->row(row) + first_kv_head * dim;
  kernels_.floats.rope(Of(p.q)->row(row) + first_head * dim, heads, dim, p.rotary_dim, half_split, cos_sin);
  kernels_.floats.rope(k, kv_heads, dim, p.rotary_dim, half_split, cos_sin);
  std::byte* base = static_cast<std::byte*>(p.kv->layer_data(p.layer));
  for (int h = 0; h < kv_heads; ++h) {
    std::byte* to = base + layout.offset(plan_.block(row), 0, first_kv_head + h, 0);
    kernels_.kv.write(k + h * dim, v + h * dim, dim, plan_.slot(row), layout.block_size,
                      int64_t(layout.plane_bytes() / 2), reinterpret_cast<uint16_t*>(to));
  }
}

void Int8Context::RopeKv(const RopeKvParams& p) {
  const KvLayout& layout = plan_.layout();
  CHECK(p.kv->layout() == layout);
  CHECK_EQ(p.k->cols(), layout.num_kv_heads * layout.head_dim);
  CHECK(p.rotary_dim <= layout.head_dim && p.rotary_dim == p.rope->cols());
  const int heads = p.q->cols() / layout.head_dim;
  // A row's own K and V are then all that is written of its sequence, and one item reads and writes them.
  if (one_row_per_sequence() && heads / layout.num_kv_heads <= kAttentionRows) {
    postponed_ = p;
    return;
  }
  pool_.RunRanges(rows(), kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int row = int(begin); row < end; ++row) RotateAndStore(p, row, 0, heads, 0, layout.num_kv_heads);
  });
}

void Int8Context::Attend(const AttentionParams& p, const AttentionItem& item, const AttentionItem* next,
                         float* scratch) const {
  const KvLayout& layout = plan_.layout();
  const CpuActivation *q = Of(p.q), *out = Of(p.out);
  const int64_t column = int64_t(item.first_head) * layout.head_dim;
  const auto head_data = [&](int kv_head) {
    const std::byte* base = static_cast<const CpuKvPool*>(p.kv)->layer_bytes(p.layer);
    return reinterpret_cast<const uint16_t*>(base + layout.offset(0, 0, kv_head, 0));
  };
  Bf16NextItem upcoming;
  if (next != nullptr) {
    upcoming = {head_data(next->kv_head), plan_.block_table(next->seq), plan_.position(next->first_row) + next->tokens};
  }
  kernels_.kv.attention({.q = q->row(item.first_row) + column,
                         .ldq = q->ld(),
                         .out = out->row(item.first_row) + column,
                         .ldo = out->ld(),
                         .tokens = item.tokens,
                         .heads = item.heads,
                         .first_position = plan_.position(item.first_row),
                         .head_dim = layout.head_dim,
                         .scale = p.scale,
                         .kv = head_data(item.kv_head),
                         .block_stride = int64_t(layout.block_bytes() / 2),
                         .v_offset = int64_t(layout.plane_bytes() / 2),
                         .block_size = layout.block_size,
                         .blocks = plan_.block_table(item.seq),
                         .next = upcoming,
                         .scratch = scratch});
}

void Int8Context::Attention(const AttentionParams& p) {
  const KvLayout& layout = plan_.layout();
  CHECK(p.kv->layout() == layout);
  CHECK_EQ(p.q->cols(), p.num_heads * layout.head_dim);
  CHECK(!postponed_ || postponed_->layer == p.layer) << "attention must follow its RoPE";
  plan_.PlanAttention(p.num_heads, pool_.threads());
  pool_.Run([&](int thread) {
    const std::span<const AttentionItem> share = plan_.share(thread);
    for (size_t i = 0; i < share.size(); ++i) {
      const AttentionItem& item = share[i];
      if (postponed_) RotateAndStore(*postponed_, item.first_row, item.first_head, item.heads, item.kv_head, 1);
      Attend(p, item, i + 1 < share.size() ? &share[i + 1] : nullptr, scratch_.of(thread));
    }
  });
  postponed_.reset();
}

void Int8Context::Output(const OutputParams& p) {
  const CpuActivation *attn = Of(p.attn), *x = Of(p.x);
  const auto copied = [&](int64_t i, float* work) { std::copy_n(attn->row(i), attn->cols(), work); };
  Linear(
      rows(), *LinearOf(p.wo), LinearOf(p.wo)->panels(), copied,
      [&](const Int8Rows& in, int64_t begin, int64_t end) { Matmul(p.wo, in, x->row(0), x->ld(), true, begin, end); });
}

void Int8Context::Mlp(const MlpParams& p) {
  const CpuActivation* x = Of(p.x);
  const int64_t ffn = p.gate->rows();
  hidden_.Use(rows(), ffn);
  const float* norm = TableOf(p.norm)->f32_row(0);
  const GateFunction f = p.activation == MlpActivation::kSilu ? GateFunction::kSilu : GateFunction::kGeluTanh;
  const auto normed = [&](int64_t i, float* work) {
    kernels_.floats.rms_norm(x->row(i), norm, p.eps, x->cols(), work);
  };
  Linear(rows(), *LinearOf(p.gate), LinearOf(p.gate)->panels(), normed,
         [&](const Int8Rows& in, int64_t begin, int64_t end) {
           kernels_.int8.gate_up(in, LinearOf(p.gate)->view(), LinearOf(p.up)->view(), f, hidden_.row(0), hidden_.ld(),
                                 begin, end);
         });
  const auto copied = [&](int64_t i, float* work) { std::copy_n(hidden_.row(i), ffn, work); };
  Linear(rows(), *LinearOf(p.down), LinearOf(p.down)->panels(), copied,
         [&](const Int8Rows& in, int64_t begin, int64_t end) {
           Matmul(p.down, in, x->row(0), x->ld(), true, begin, end);
         });
}

void Int8Context::Head(const HeadParams& p) {
  const auto& wanted = plan_.batch().logit_rows;
  const CpuActivation* x = Of(p.x);
  const float* norm = TableOf(p.norm)->f32_row(0);
  const auto normed = [&](int64_t i, float* work) {
    kernels_.floats.rms_norm(x->row(wanted[size_t(i)]), norm, p.eps, x->cols(), work);
  };
  Linear(int64_t(wanted.size()), *LinearOf(p.head), LinearOf(p.head)->panels(), normed,
         [&](const Int8Rows& in, int64_t begin, int64_t end) {
           Matmul(p.head, in, p.logits, p.head->rows(), false, begin, end);
         });
}

}  // namespace sluice::kernels::cpu
