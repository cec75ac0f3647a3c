// The plan of one step, made once for all layers: where each row stands in its sequence and how attention is cut into
// items. Pure; nothing in a result depends on the cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sluice::kernels::cpu {

// Consecutive tokens of one sequence and some heads of one KV head, and the keys they see or a part of these.
struct AttentionItem {
  int seq;
  int first_row;
  int tokens;
  int kv_head;     // of the pool
  int first_head;  // among all heads
  int heads;
  int64_t first_key;
  int64_t end_key;
  int64_t states = -1;  // row of the buffer of states where those of this part start; -1: the item is whole

  int rows() const { return tokens * heads; }
};

// An item that was cut at the borders of spans: its parts leave their states (paged_kv.h) one after the other.
struct SplitItem {
  AttentionItem whole;
  int64_t first_cut;  // key; what is before is one state, what is after one a span

  // Of a token, counted from the item's first: the states that hold its keys.
  int states(int64_t position) const;
};

class StepPlan {
 public:
  // Keeps the spans of `batch`.
  // Of the KV heads [first, first + count) of the pool; count 0: all of it.
  void Begin(const StepBatch& batch, const KvLayout& layout, int first_kv_head = 0, int num_kv_heads = 0);

  const StepBatch& batch() const { return batch_; }
  const KvLayout& layout() const { return layout_; }
  int first_kv_head() const { return first_kv_head_; }
  int num_kv_heads() const { return num_kv_heads_; }
  int64_t position(int row) const { return positions_[size_t(row)]; }
  int block(int row) const { return blocks_[size_t(row)]; }  // of the row's own slot
  int slot(int row) const { return int(positions_[size_t(row)] % layout_.block_size); }
  const int32_t* block_table(int seq) const { return batch_.block_table.data() + int64_t(seq) * batch_.max_blocks; }

  // Items in a fixed order, and the contiguous share of worker `part` of `parts`, balanced by keys read. Where whole
  // items would leave shares unequal, items are cut, as long as there is room for their states in a buffer of
  // `state_rows` rows.
  void PlanAttention(int num_heads, int parts, int64_t state_rows);
  std::span<const AttentionItem> share(int part) const;
  std::span<const SplitItem> splits() const { return splits_; }  // fewer than parts

 private:
  // Before the key of the item, as listed whole; a key of 0 is before the item itself.
  struct Border {
    size_t item;
    int64_t key;
  };

  void ListWholeItems(int num_heads);
  // Near `target` of the running cost, not before `last`.
  Border PlaceBorder(double target, double share, const Border& last, int64_t state_rows, int64_t* used_rows);
  void CutAt(std::span<const Border> borders);

  StepBatch batch_;
  KvLayout layout_;
  std::vector<int64_t> positions_;  // [rows]
  std::vector<int32_t> blocks_;     // [rows]
  int first_kv_head_ = 0, num_kv_heads_ = 0;
  int planned_heads_ = 0;  // of items_; 0 until PlanAttention
  int planned_parts_ = 0;
  std::vector<AttentionItem> whole_;
  std::vector<double> cost_;  // [whole_] running total, this item included
  std::vector<Border> cuts_;  // [parts - 1]
  std::vector<SplitItem> splits_;
  std::vector<AttentionItem> items_;
  std::vector<size_t> borders_;  // [parts + 1] in items_
};

}  // namespace sluice::kernels::cpu
