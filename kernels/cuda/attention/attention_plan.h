// What attention has to do in a step, as work items for the kernels of attention.h: built once on the host for all
// layers that share group size, head dim and window, and read by the kernels from device memory.
//
// Keys lie in spans of 256 at absolute positions. A sequence with few rows (decode, verification of drafts) is cut into
// span items: up to 16 matrix rows (tokens x query heads of a KV head) against one span, whose results are merged. One
// with more rows is cut into prefill items, each of which walks its spans in order. Both give the same bits, so that
// the choice is one of speed and memory alone: a sequence takes the first way if it needs at most kMaxItemsASpan items
// for each span (each reads the span anew) and as long as there is room for its results.
//
// The plan is one array of 32-bit words: a header, then the items of each kind, packed. Only the words in use have to
// be copied; a kernel takes its counts from the header, so that a captured launch serves every plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::kernels::cuda {

inline constexpr int kAttentionSpan = 256;  // keys
inline constexpr int kSpanItemRows = 16;    // tokens x heads of a span item
inline constexpr int kMaxItemsASpan = 4;
inline constexpr int kMaxPartials = 8192;  // of a plan, unless it has more rows than that: 1 is one row and one span

// `tokens` consecutive rows from `row` on, the first of them at `position`, against the keys of one span.
// The result of token t goes to partial + t * stride.
struct SpanItem {
  int32_t seq, row, tokens, position;
  int32_t span, partial, stride, unused;
};

// A row whose `spans` results lie at `partial` and behind it, in ascending order.
struct MergeItem {
  int32_t row, partial, spans, unused;
};

struct PrefillItem {
  int32_t seq, row, tokens, position;
};

struct AttentionPlanHeader {
  int32_t spans, merges, prefills;        // items
  int32_t span_at, merge_at, prefill_at;  // first word of each kind; multiples of 4
  int32_t words;                          // of the plan
  int32_t partials;                       // in use
};

struct AttentionShape {
  int group = 1;  // query heads of a KV head
  int head_dim = 0;
  int window = 0;  // a row sees the last `window` keys up to its own; 0: all of them
};

// Upper bounds of a plan. The first three size launches, too: any number > 0 gives the right result, but too few blocks
// do the work one after the other.
struct AttentionCapacity {
  int spans = 0, merges = 0, prefills = 0;
  int partials = 0;  // results of span items

  size_t words() const;  // of the plan
};

// Rows of a prefill item, tokens x heads of a KV head.
constexpr int PrefillItemRows(int head_dim) {
  return head_dim > 128 ? 64 : 128;
}
// Of a group the heads that share an item; a larger group is cut.
constexpr int ItemHeads(int group) {
  return group < kSpanItemRows ? group : kSpanItemRows;
}

AttentionCapacity CapacityFor(int max_rows, int max_seqs, int max_context, const AttentionShape& shape);

// row_begin [seqs + 1], context_len [seqs] as in StepBatch (backend.h); a sequence without rows has no items.
// `plan` has capacity.words() words. Returns the words in use.
size_t BuildAttentionPlan(std::span<const int32_t> row_begin, std::span<const int32_t> context_len,
                          const AttentionShape& shape, const AttentionCapacity& capacity, std::span<int32_t> plan);

}  // namespace sluice::kernels::cuda
