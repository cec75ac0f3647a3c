// The plan of one step, made once for all layers: where each row stands in its sequence and how attention is cut into
// items. Pure; nothing in a result depends on the cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sluice::kernels::cpu {

// Consecutive tokens of one sequence and some heads of one KV head.
struct AttentionItem {
  int seq;
  int first_row;
  int tokens;
  int kv_head;
  int first_head;  // among all heads
  int heads;
};

class StepPlan {
 public:
  // Keeps the spans of `batch`.
  void Begin(const StepBatch& batch, const KvLayout& layout);

  const StepBatch& batch() const { return batch_; }
  const KvLayout& layout() const { return layout_; }
  int64_t position(int row) const { return positions_[size_t(row)]; }
  int block(int row) const { return blocks_[size_t(row)]; }  // of the row's own slot
  int slot(int row) const { return int(positions_[size_t(row)] % layout_.block_size); }
  const int32_t* block_table(int seq) const { return batch_.block_table.data() + int64_t(seq) * batch_.max_blocks; }

  // Items in a fixed order, and the contiguous share of worker `part` of `parts`, balanced by keys read.
  void PlanAttention(int num_heads, int parts);
  std::span<const AttentionItem> share(int part) const;

 private:
  StepBatch batch_;
  KvLayout layout_;
  std::vector<int64_t> positions_;  // [rows]
  std::vector<int32_t> blocks_;     // [rows]
  int planned_heads_ = 0;           // of items_; 0 until PlanAttention
  int planned_parts_ = 0;
  std::vector<AttentionItem> items_;
  std::vector<double> cost_;     // [items] running total, this item included
  std::vector<size_t> borders_;  // [parts + 1]
};

}  // namespace sluice::kernels::cpu
