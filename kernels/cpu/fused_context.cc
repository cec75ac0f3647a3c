#include "kernels/cpu/fused_context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/embed.h"

namespace sluice::kernels::cpu {
namespace {

// So many rows each thread quantises for itself.
constexpr int kOwnRows = 4;

const CpuWeight* TableOf(const Weight* w) {
  return static_cast<const CpuWeight*>(w);
}
const CpuActivation* Of(const Activation* a) {
  return static_cast<const CpuActivation*>(a);
}

// A row on its way into a product, or an attention item.
int64_t ScratchFloats(int64_t cols, int64_t head_dim) {
  return std::max(PadRow(cols), PagedAttention::ScratchFloats(head_dim));
}

}  // namespace

FusedContext::FusedContext(const ContextLimits& limits, const Products& products, const FusedKernels& kernels,
                           int threads)
    : limits_(limits),
      kernels_(kernels),
      products_(products),
      pool_(threads),
      scratch_(threads, ScratchFloats),
      own_rows_(size_t(threads)),
      gathering_(limits.collective) {}

absl::StatusOr<std::unique_ptr<FusedContext>> FusedContext::Create(const ContextLimits& limits,
                                                                   const Products& products,
                                                                   const FusedKernels& kernels, int threads) {
  if (limits.max_rows <= 0 || limits.max_hidden <= 0 || limits.max_ffn <= 0) {
    return absl::InvalidArgumentError("a context needs max_rows, max_hidden and max_ffn of at least 1");
  }
  std::unique_ptr<FusedContext> context(new FusedContext(limits, products, kernels, threads));
  const int widest = std::max(limits.max_hidden, limits.max_ffn);
  if (auto s = context->HoldRows(widest); !s.ok()) return s;
  if (auto s = context->scratch_.Hold(widest, 128); !s.ok()) return s;
  auto attention = PagedAttention::Create({.floats = kernels.floats,
                                           .kv = kernels.kv,
                                           .pool = context->pool_,
                                           .plan = context->plan_,
                                           .scratch = context->scratch_});
  if (!attention.ok()) return attention.status();
  context->attention_ = *std::move(attention);
  return context;
}

absl::Status FusedContext::HoldRows(int64_t cols) {
  if (cols <= row_cols_) return absl::OkStatus();
  row_cols_ = cols;
  const auto make = [&](int count, std::unique_ptr<ProductRows>& to) {
    auto made = products_.NewRows(count, cols);
    if (made.ok()) to = *std::move(made);
    return made.status();
  };
  if (auto s = make(std::max(limits_.max_rows, limits_.max_logits), shared_rows_); !s.ok()) return s;
  for (std::unique_ptr<ProductRows>& own : own_rows_) {
    if (auto s = make(kOwnRows, own); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Activation>> FusedContext::NewActivation(int cols, ActivationUse) {
  if (cols <= 0) return absl::InvalidArgumentError("an activation needs columns");
  if (auto s = HoldRows(cols); !s.ok()) return s;
  if (auto s = scratch_.Hold(cols, 0); !s.ok()) return s;
  return CpuActivation::Create(limits_.max_rows, cols);
}

void FusedContext::BeginStep(const StepBatch& batch, const KvLayout& layout) {
  CHECK_LE(batch.rows(), limits_.max_rows);
  plan_.Begin(batch, layout, limits_.first_kv_head, limits_.num_kv_heads);
  // Grows in the first step of a layout with very wide heads only.
  const absl::Status grown = scratch_.Hold(0, layout.head_dim);
  CHECK(grown.ok()) << grown;
}

void FusedContext::Embed(const EmbedParams& p) {
  EmbedRows(p, plan_.batch(), kernels_.floats, pool_);
}

void FusedContext::Linear(int64_t count, const Weight& w, int64_t panels, FillRow fill, Multiply multiply,
                          int64_t grain) {
  if (count == 0) return;
  const auto take = [&](int64_t begin, int64_t end, int thread, ProductRows& to) {
    float* work = scratch_.of(thread);
    for (int64_t i = begin; i < end; ++i) {
      fill(i, work);
      std::fill(work + w.cols(), work + to.work_floats(), 0.0f);
      to.Set(i, work);
    }
  };
  if (count <= kOwnRows) {
    pool_.RunRanges(panels, grain, [&](int64_t begin, int64_t end, int thread) {
      ProductRows& own = *own_rows_[size_t(thread)];
      own.Use(w);
      take(0, count, thread, own);
      multiply(own, begin, end);
    });
    return;
  }
  shared_rows_->Use(w);
  pool_.RunRanges(count, 1, [&](int64_t begin, int64_t end, int thread) { take(begin, end, thread, *shared_rows_); });
  pool_.RunRanges(panels, grain, [&](int64_t begin, int64_t end, int) { multiply(*shared_rows_, begin, end); });
}

void FusedContext::NormQkv(const NormQkvParams& p) {
  struct Product {
    const Weight* w;
    const Weight* bias;
    const CpuActivation* y;
  };
  const Product products[] = {{p.wq, p.bq, Of(p.q)}, {p.wk, p.bk, Of(p.k)}, {p.wv, p.bv, Of(p.v)}};
  int64_t panels[4] = {};  // of all three in a row
  for (int i = 0; i < 3; ++i) panels[i + 1] = panels[i] + PanelsOf(*products[i].w);
  const CpuActivation* x = Of(p.x);
  const float* norm = TableOf(p.norm)->f32_row(0);
  const auto normed = [&](int64_t i, float* work) {
    kernels_.floats.rms_norm(x->row(i), norm, p.eps, x->cols(), work);
  };
  Linear(rows(), *p.wq, panels[3], normed, [&](const ProductRows& in, int64_t begin, int64_t end) {
    for (int i = 0; i < 3; ++i) {
      const Product& product = products[i];
      const int64_t first = std::max(begin, panels[i]) - panels[i], last = std::min(end, panels[i + 1]) - panels[i];
      if (first >= last) continue;
      products_.Multiply(*product.w, in, rows(),
                         {.y = product.y->row(0),
                          .ld = product.y->ld(),
                          .bias = product.bias ? TableOf(product.bias)->f32_row(0) : nullptr,
                          .accumulate = false},
                         first, last);
    }
  });
}

void FusedContext::RopeKv(const RopeKvParams& p) {
  attention_->RopeKv(p);
}

void FusedContext::Attention(const AttentionParams& p) {
  attention_->Run(p);
}

void FusedContext::Project(const ProjectParams& p) {
  const CpuActivation* x = Of(p.x);
  const auto fill = [&](int64_t i, float* work) { attention_->FillRow(*p.in, i, work); };
  const ProductOutput out{.y = x->row(0) + p.column, .ld = x->ld(), .bias = nullptr, .accumulate = true};
  Linear(rows(), *p.w, PanelsOf(*p.w), fill, [&](const ProductRows& in, int64_t begin, int64_t end) {
    products_.Multiply(*p.w, in, rows(), out, begin, end);
  });
}

void FusedContext::GateUp(const GateUpParams& p) {
  const CpuActivation *x = Of(p.x), *h = Of(p.h);
  const float* norm = TableOf(p.norm)->f32_row(0);
  const GateFunction f = p.activation == MlpActivation::kSilu ? GateFunction::kSilu : GateFunction::kGeluTanh;
  const auto normed = [&](int64_t i, float* work) {
    kernels_.floats.rms_norm(x->row(i), norm, p.eps, x->cols(), work);
  };
  Linear(rows(), *p.gate, PanelsOf(*p.gate), normed, [&](const ProductRows& in, int64_t begin, int64_t end) {
    products_.GateUp(*p.gate, *p.up, in, rows(), f, h->row(0) + p.column, h->ld(), begin, end);
  });
}

void FusedContext::Gather(const GatherParams& p) {
  attention_->Merge(*p.rows);
  gathering_.Rows(*Of(p.rows), rows(), p.borders);
}

void FusedContext::GatherLogits(const GatherLogitsParams& p) {
  gathering_.Logits(p, int64_t(plan_.batch().logit_rows.size()));
}

void FusedContext::Head(const HeadParams& p) {
  const auto& wanted = plan_.batch().logit_rows;
  const CpuActivation* x = Of(p.x);
  const float* norm = TableOf(p.norm)->f32_row(0);
  const auto normed = [&](int64_t i, float* work) {
    kernels_.floats.rms_norm(x->row(wanted[size_t(i)]), norm, p.eps, x->cols(), work);
  };
  if (p.head == nullptr) return;
  const int64_t count = int64_t(wanted.size()), vocab = p.vocab > 0 ? p.vocab : p.head->rows();
  const int64_t blocks = NumLogitBlocks(vocab);
  const ProductOutput out{.y = p.logits + p.first, .ld = vocab, .bias = nullptr, .accumulate = false};
  // The largest of each block is looked for while its logits are in the cache.
  static_assert(kLogitBlock == 64, "that is what block_maxima does");
  constexpr int64_t kPiece = 64, kBlockPanels = kLogitBlock / kPanelRows;
  const auto multiply = [&](const ProductRows& in, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; panel += kPiece) {
      const int64_t last = std::min(panel + kPiece, end), from = panel * kPanelRows;
      products_.Multiply(*p.head, in, count, out, panel, last);
      for (int64_t i = 0; p.maxima != nullptr && i < count; ++i) {
        kernels_.floats.block_maxima(out.y + i * vocab + from, std::min(last * kPanelRows, p.head->rows()) - from,
                                     p.maxima + i * blocks + (p.first + from) / kLogitBlock);
      }
    }
  };
  Linear(count, *p.head, PanelsOf(*p.head), normed, multiply, kBlockPanels);
}

}  // namespace sluice::kernels::cpu
