#include "kernels/cpu/cpu_context.h"

#include <algorithm>
#include <cstring>

#include "glog/logging.h"
#include "kernels/cpu/embed.h"

namespace sluice::kernels::cpu {
namespace {

// Rows per parallel range of the cheap row-wise phases: below this a hand-over costs more than it saves.
constexpr int64_t kRowGrain = 16;

// Columns of gate and up that are computed before the activation joins them, so that they are still in L2.
constexpr int64_t kMlpColumns = 64;

const CpuWeight* Of(const Weight* w) {
  return static_cast<const CpuWeight*>(w);
}
const CpuActivation* Of(const Activation* a) {
  return static_cast<const CpuActivation*>(a);
}

// A weight tile, or an attention item.
int64_t ScratchFloats(int64_t cols, int64_t head_dim) {
  return std::max(PadRow(cols) * kTileColumns, AttentionScratchFloats(head_dim));
}

}  // namespace

CpuContext::CpuContext(const ContextLimits& limits, const KernelTable& kernels, int threads)
    : limits_(limits),
      kernels_(kernels),
      pool_(threads),
      scratch_(threads, ScratchFloats),
      gathering_(limits.collective) {}

absl::StatusOr<std::unique_ptr<CpuContext>> CpuContext::Create(const ContextLimits& limits, const KernelTable& kernels,
                                                               int threads) {
  if (limits.max_rows <= 0 || limits.max_hidden <= 0 || limits.max_ffn <= 0) {
    return absl::InvalidArgumentError("a context needs max_rows, max_hidden and max_ffn of at least 1");
  }
  std::unique_ptr<CpuContext> context(new CpuContext(limits, kernels, threads));
  const auto make = [&](int cols, ScratchRows& to) {
    auto made = ScratchRows::Create(std::max(limits.max_rows, limits.max_logits), cols);
    if (made.ok()) to = *std::move(made);
    return made.status();
  };
  if (auto s = make(limits.max_hidden, context->normed_); !s.ok()) return s;
  if (auto s = make(limits.max_ffn, context->up_); !s.ok()) return s;
  if (auto s = context->scratch_.Hold(std::max(limits.max_hidden, limits.max_ffn), 128); !s.ok()) return s;
  return context;
}

absl::StatusOr<std::unique_ptr<Activation>> CpuContext::NewActivation(int cols, ActivationUse) {
  if (cols <= 0) return absl::InvalidArgumentError("an activation needs columns");
  if (auto s = scratch_.Hold(cols, 0); !s.ok()) return s;
  return CpuActivation::Create(limits_.max_rows, cols);
}

void CpuContext::BeginStep(const StepBatch& batch, const KvLayout& layout) {
  CHECK_LE(batch.rows(), limits_.max_rows);
  plan_.Begin(batch, layout, limits_.first_kv_head, limits_.num_kv_heads);
  // Grows in the first step of a layout with very wide heads only.
  const absl::Status grown = scratch_.Hold(0, layout.head_dim);
  CHECK(grown.ok()) << grown;
}

void CpuContext::Embed(const EmbedParams& p) {
  EmbedRows(p, plan_.batch(), kernels_, pool_);
}

template <class RowOf>
void CpuContext::Normalize(int count, RowOf row_of, const Activation* x, const Weight* norm, float eps) {
  normed_.Use(count, x->cols());
  const float* weight = Of(norm)->f32_row(0);
  pool_.RunRanges(count, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      kernels_.rms_norm(Of(x)->row(row_of(i)), weight, eps, x->cols(), normed_.row(i));
    }
  });
}

MatmulArgs CpuContext::Args(const Product& product, const float* x, int64_t ldx, int64_t count, bool accumulate,
                            int thread) const {
  return {.type = product.w->type(),
          .w = product.w->row(0),
          .row_bytes = product.w->row_bytes(),
          .cols = product.w->cols(),
          .x = x,
          .ldx = ldx,
          .rows = count,
          .y = product.y,
          .ldy = product.ldy,
          .bias = product.bias ? product.bias->f32_row(0) : nullptr,
          .accumulate = accumulate,
          .tile = scratch_.of(thread)};
}

void CpuContext::Matmul(const Product& product, const float* x, int64_t ldx, int64_t count, bool accumulate) {
  if (count == 0) return;
  CHECK_EQ(PadRow(product.w->cols()), ldx);
  pool_.RunRanges(product.w->rows(), kTileColumns, [&](int64_t begin, int64_t end, int thread) {
    kernels_.matmul(Args(product, x, ldx, count, accumulate, thread), begin, end);
  });
}

void CpuContext::NormQkv(const NormQkvParams& p) {
  Normalize(
      rows(), [](int64_t i) { return i; }, p.x, p.norm, p.eps);
  const Product products[] = {{Of(p.wq), Of(p.bq), Of(p.q)->row(0), Of(p.q)->ld()},
                              {Of(p.wk), Of(p.bk), Of(p.k)->row(0), Of(p.k)->ld()},
                              {Of(p.wv), Of(p.bv), Of(p.v)->row(0), Of(p.v)->ld()}};
  // One run over the columns of all three. A range covers parts of several; borders are on tiles of each.
  int64_t tiles[4] = {};
  for (int i = 0; i < 3; ++i) {
    CHECK_EQ(products[i].w->cols(), normed_.cols());
    tiles[i + 1] = tiles[i] + (products[i].w->rows() + kTileColumns - 1) / kTileColumns;
  }
  pool_.RunRanges(tiles[3], 1, [&](int64_t begin, int64_t end, int thread) {
    for (int i = 0; i < 3; ++i) {
      const int64_t first = (std::max(begin, tiles[i]) - tiles[i]) * kTileColumns;
      const int64_t last = std::min((std::min(end, tiles[i + 1]) - tiles[i]) * kTileColumns, products[i].w->rows());
      if (first >= last) continue;
      kernels_.matmul(Args(products[i], normed_.row(0), normed_.ld(), rows(), false, thread), first, last);
    }
  });
}

void CpuContext::RopeKv(const RopeKvParams& p) {
  const KvLayout& layout = plan_.layout();
  CHECK(p.kv->layout() == layout);
  const int dim = layout.head_dim, heads = p.q->cols() / dim, kv_heads = plan_.num_kv_heads();
  CHECK_EQ(p.k->cols(), kv_heads * dim);
  CHECK(p.rotary_dim <= dim && p.rotary_dim == p.rope->cols());
  const bool half_split = p.style == RopeStyle::kHalfSplit;
  std::byte* base = static_cast<std::byte*>(p.kv->layer_data(p.layer));
  pool_.RunRanges(rows(), kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int row = int(begin); row < end; ++row) {
      CHECK_LT(plan_.position(row), p.rope->rows()) << "position past the RoPE table";
      const float* cos_sin = Of(p.rope)->f32_row(plan_.position(row));
      float* k = Of(p.k)->row(row);
      kernels_.rope(Of(p.q)->row(row), heads, dim, p.rotary_dim, half_split, cos_sin);
      kernels_.rope(k, kv_heads, dim, p.rotary_dim, half_split, cos_sin);
      const float* v = Of(p.v)->row(row);
      const int block = plan_.block(row), slot = plan_.slot(row);
      for (int h = 0; h < kv_heads; ++h) {
        std::memcpy(base + layout.offset(block, 0, plan_.first_kv_head() + h, slot), k + h * dim,
                    size_t(dim) * sizeof(float));
        std::memcpy(base + layout.offset(block, 1, plan_.first_kv_head() + h, slot), v + h * dim,
                    size_t(dim) * sizeof(float));
      }
    }
  });
}

void CpuContext::Attention(const AttentionParams& p) {
  const KvLayout& layout = plan_.layout();
  CHECK(p.kv->layout() == layout);
  CHECK_EQ(p.q->cols(), p.num_heads * layout.head_dim);
  const CpuActivation *q = Of(p.q), *out = Of(p.out);
  const float* base = static_cast<const CpuKvPool*>(p.kv)->layer_floats(p.layer);
  plan_.PlanAttention(p.num_heads, pool_.threads(), /*state_rows=*/0);
  pool_.Run([&](int thread) {
    for (const AttentionItem& item : plan_.share(thread)) {
      const int64_t column = int64_t(item.first_head) * layout.head_dim;
      const int64_t out_column = column + int64_t(p.first_head) * layout.head_dim;
      kernels_.attention({.q = q->row(item.first_row) + column,
                          .ldq = q->ld(),
                          .out = out->row(item.first_row) + out_column,
                          .ldo = out->ld(),
                          .tokens = item.tokens,
                          .heads = item.heads,
                          .first_position = plan_.position(item.first_row),
                          .head_dim = layout.head_dim,
                          .scale = p.scale,
                          .kv = base + layout.offset(0, 0, item.kv_head, 0) / sizeof(float),
                          .block_stride = int64_t(layout.block_bytes() / sizeof(float)),
                          .v_offset = int64_t(layout.plane_bytes() / sizeof(float)),
                          .block_size = layout.block_size,
                          .blocks = plan_.block_table(item.seq),
                          .scratch = scratch_.of(thread)});
    }
  });
}

void CpuContext::Project(const ProjectParams& p) {
  const CpuActivation* x = Of(p.x);
  Matmul({Of(p.w), nullptr, x->row(0) + p.column, x->ld()}, Of(p.in)->row(0), Of(p.in)->ld(), rows(), true);
}

void CpuContext::GateUp(const GateUpParams& p) {
  Normalize(
      rows(), [](int64_t i) { return i; }, p.x, p.norm, p.eps);
  const int64_t ffn = p.gate->rows();
  const CpuActivation* h = Of(p.h);
  up_.Use(rows(), ffn);
  const Product gate{Of(p.gate), nullptr, h->row(0) + p.column, h->ld()};
  const Product up{Of(p.up), nullptr, up_.row(0), up_.ld()};
  const auto join = p.activation == MlpActivation::kSilu ? kernels_.silu_mul : kernels_.gelu_tanh_mul;
  pool_.RunRanges(ffn, kTileColumns, [&](int64_t begin, int64_t end, int thread) {
    const MatmulArgs gate_args = Args(gate, normed_.row(0), normed_.ld(), rows(), false, thread);
    const MatmulArgs up_args = Args(up, normed_.row(0), normed_.ld(), rows(), false, thread);
    for (int64_t n = begin; n < end; n += kMlpColumns) {
      const int64_t last = std::min(n + kMlpColumns, end);
      kernels_.matmul(gate_args, n, last);
      kernels_.matmul(up_args, n, last);
      for (int row = 0; row < rows(); ++row) join(h->row(row) + p.column + n, up_.row(row) + n, last - n);
    }
  });
}

void CpuContext::Gather(const GatherParams& p) {
  gathering_.Rows(*Of(p.rows), rows(), p.borders);
}

void CpuContext::GatherLogits(const GatherLogitsParams& p) {
  gathering_.Logits(p, int64_t(plan_.batch().logit_rows.size()));
}

void CpuContext::Head(const HeadParams& p) {
  if (p.head == nullptr) return;
  const auto& wanted = plan_.batch().logit_rows;
  const int count = int(wanted.size());
  Normalize(
      count, [&](int64_t i) { return wanted[size_t(i)]; }, p.x, p.norm, p.eps);
  const int64_t vocab = p.vocab > 0 ? p.vocab : p.head->rows();
  float* logits = p.logits + p.first;
  Matmul({Of(p.head), nullptr, logits, vocab}, normed_.row(0), normed_.ld(), count, false);
  if (p.maxima == nullptr) return;
  pool_.RunRanges(count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      kernels_.block_maxima(logits + i * vocab, p.head->rows(),
                            p.maxima + i * NumLogitBlocks(vocab) + p.first / kLogitBlock);
    }
  });
}

}  // namespace sluice::kernels::cpu
