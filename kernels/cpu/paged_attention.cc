#include "kernels/cpu/paged_attention.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/cpu_storage.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int64_t kRowGrain = 16;

// Fewer items than threads are ever cut; so much room for each. A state of three heads of 64 is 800 bytes, so this is a
// context of 300,000 tokens. Memory that is not used costs nothing.
constexpr size_t kStateBytesOfThread = size_t{1} << 20;

const CpuActivation* Of(const Activation* a) {
  return static_cast<const CpuActivation*>(a);
}

}  // namespace

// The kernel's, and one item's rotated queries.
int64_t PagedAttention::ScratchFloats(int64_t head_dim) {
  return PagedAttentionScratchFloats(head_dim) + kAttentionRows * PaddedHeadDim(head_dim);
}

absl::StatusOr<std::unique_ptr<PagedAttention>> PagedAttention::Create(const Parts& parts) {
  std::unique_ptr<PagedAttention> made(new PagedAttention(parts));
  const size_t bytes = size_t(parts.pool.threads() - 1) * kStateBytesOfThread;
  auto memory = HostMemory::Map(bytes);
  if (!memory) return absl::ResourceExhaustedError(absl::StrCat("no memory for attention states of ", bytes, " bytes"));
  made->states_ = std::move(*memory);
  return made;
}

void PagedAttention::Prepare(const KvLayout& layout) {
  if (layout_ == layout) return;
  layout_ = layout;
  strides_ = {.block = int64_t(layout.block_bytes()),
              .v = int64_t(layout.plane_bytes()),
              .scales = int64_t(layout.scales_offset())};
  rotation_.reset();
  if (parts_.kv.rotate != nullptr && layout.head_dim % 16 == 0) rotation_ = PlanRotation(layout.head_dim);
}

void PagedAttention::RotateHeads(float* heads, int count) const {
  if (!rotation_) return;
  for (int h = 0; h < count; ++h) parts_.kv.rotate(*rotation_, heads + h * layout_.head_dim);
}

const float* PagedAttention::CosSin(const RopeKvParams& p, int row) const {
  CHECK_LT(parts_.plan.position(row), p.rope->rows()) << "position past the RoPE table";
  return static_cast<const CpuWeight*>(p.rope)->f32_row(parts_.plan.position(row));
}

void PagedAttention::PlaceQueries(const RopeKvParams& p, int row, int heads, float* q) const {
  parts_.floats.rope(q, heads, parts_.plan.layout().head_dim, p.rotary_dim, p.style == RopeStyle::kHalfSplit,
                     CosSin(p, row));
  RotateHeads(q, heads);
}

// KV heads [first, first + count) of the pool.
void PagedAttention::StoreKeys(const RopeKvParams& p, int row, int first_kv_head, int kv_heads) const {
  const KvLayout& layout = parts_.plan.layout();
  const int dim = layout.head_dim;
  const int column = (first_kv_head - parts_.plan.first_kv_head()) * dim;
  float* k = Of(p.k)->row(row) + column;
  const float* v = Of(p.v)->row(row) + column;
  parts_.floats.rope(k, kv_heads, dim, p.rotary_dim, p.style == RopeStyle::kHalfSplit, CosSin(p, row));
  RotateHeads(k, kv_heads);
  std::byte* base = static_cast<std::byte*>(p.kv->layer_data(p.layer));
  for (int h = 0; h < kv_heads; ++h) {
    std::byte* to = base + layout.offset(parts_.plan.block(row), 0, first_kv_head + h, 0);
    parts_.kv.write(k + h * dim, v + h * dim, dim, parts_.plan.slot(row), layout.block_size, strides_, to);
  }
}

void PagedAttention::RopeKv(const RopeKvParams& p) {
  const StepPlan& plan = parts_.plan;
  const KvLayout& layout = plan.layout();
  CHECK(p.kv->layout() == layout);
  CHECK_EQ(p.k->cols(), plan.num_kv_heads() * layout.head_dim);
  CHECK(p.rotary_dim <= layout.head_dim && p.rotary_dim == p.rope->cols());
  Prepare(layout);
  const int heads = p.q->cols() / layout.head_dim;
  const int rows = plan.batch().rows();
  // With one row a sequence, its own K and V are all that is written of it, and they are the last that the last part
  // of its item reads.
  if (rows == plan.batch().seqs() && heads / plan.num_kv_heads() <= kAttentionRows) {
    postponed_ = p;
    return;
  }
  parts_.pool.RunRanges(rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int row = int(begin); row < end; ++row) {
      PlaceQueries(p, row, heads, Of(p.q)->row(row));
      StoreKeys(p, row, plan.first_kv_head(), plan.num_kv_heads());
    }
  });
}

void PagedAttention::Attend(const AttentionParams& p, const AttentionItem& item, const AttentionItem* next,
                            float* scratch) const {
  const StepPlan& plan = parts_.plan;
  const KvLayout& layout = plan.layout();
  const CpuActivation *q = Of(p.q), *out = Of(p.out);
  const int64_t column = int64_t(item.first_head) * layout.head_dim;
  const float* queries = q->row(item.first_row) + column;
  if (postponed_) {  // in a copy: other parts of the item want them as they are
    const bool reads_its_own = item.end_key == plan.position(item.first_row) + 1;
    if (reads_its_own) StoreKeys(*postponed_, item.first_row, item.kv_head, 1);
    float* rotated = scratch + PagedAttentionScratchFloats(layout.head_dim);
    std::copy_n(queries, item.heads * layout.head_dim, rotated);
    PlaceQueries(*postponed_, item.first_row, item.heads, rotated);
    queries = rotated;
  }
  const auto head_data = [&](int kv_head) {
    const std::byte* base = static_cast<const CpuKvPool*>(p.kv)->layer_bytes(p.layer);
    return base + layout.offset(0, 0, kv_head, 0);
  };
  NextKeys upcoming;
  if (next != nullptr) {
    upcoming = {head_data(next->kv_head), plan.block_table(next->seq), next->first_key, next->end_key};
  }
  float* states = nullptr;
  if (item.states >= 0) states = states_.floats() + AttentionStateFloats(item.states, layout.head_dim);
  parts_.kv.attention({.q = queries,
                       .ldq = q->ld(),
                       .out = out->row(item.first_row) + int64_t(p.first_head) * layout.head_dim + column,
                       .ldo = out->ld(),
                       .tokens = item.tokens,
                       .heads = item.heads,
                       .first_position = plan.position(item.first_row),
                       .head_dim = layout.head_dim,
                       .scale = rotation_ ? float(p.scale / rotation_->gain) : p.scale,
                       .kv = head_data(item.kv_head),
                       .strides = strides_,
                       .block_size = layout.block_size,
                       .blocks = plan.block_table(item.seq),
                       .first_key = item.first_key,
                       .end_key = item.end_key,
                       .states = states,
                       .next = upcoming,
                       .scratch = scratch});
}

void PagedAttention::Run(const AttentionParams& p) {
  StepPlan& plan = parts_.plan;
  const KvLayout& layout = plan.layout();
  CHECK(p.kv->layout() == layout && layout_ == layout) << "attention must follow its RoPE";
  CHECK_EQ(p.q->cols(), p.num_heads * layout.head_dim);
  CHECK(!postponed_ || postponed_->layer == p.layer) << "attention must follow its RoPE";
  const int64_t state_rows = int64_t(states_.bytes() / sizeof(float)) / AttentionStateFloats(1, layout.head_dim);
  plan.PlanAttention(p.num_heads, parts_.pool.threads(), state_rows);
  parts_.pool.Run([&](int thread) {
    const std::span<const AttentionItem> share = plan.share(thread);
    for (size_t i = 0; i < share.size(); ++i) {
      Attend(p, share[i], i + 1 < share.size() ? &share[i + 1] : nullptr, parts_.scratch.of(thread));
    }
  });
  postponed_.reset();
  unmerged_ = p.out;
  first_column_ = int64_t(p.first_head) * layout.head_dim;
}

void PagedAttention::MergeRow(int64_t i, float* row) const {
  const int dim = parts_.plan.layout().head_dim;
  for (const SplitItem& split : parts_.plan.splits()) {
    const AttentionItem& item = split.whole;
    const int token = int(i) - item.first_row;
    if (token < 0 || token >= item.tokens) continue;
    for (int h = 0; h < item.heads; ++h) {
      parts_.kv.merge({.states = states_.floats() + AttentionStateFloats(item.states, dim),
                       .count = split.states(parts_.plan.position(int(i))),
                       .rows = item.rows(),
                       .row = token * item.heads + h,
                       .head_dim = dim,
                       .out = row + first_column_ + int64_t(item.first_head + h) * dim});
    }
  }
}

void PagedAttention::FillRow(const Activation& of, int64_t i, float* row) const {
  std::copy_n(Of(&of)->row(i), of.cols(), row);
  if (&of == unmerged_) MergeRow(i, row);
}

void PagedAttention::Merge(const Activation& out) {
  if (&out != unmerged_) return;
  unmerged_ = nullptr;
  if (parts_.plan.splits().empty()) return;
  for (int64_t i = 0; i < parts_.plan.batch().rows(); ++i) MergeRow(i, Of(&out)->row(i));
}

}  // namespace sluice::kernels::cpu
