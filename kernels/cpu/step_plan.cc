#include "kernels/cpu/step_plan.h"

#include <algorithm>

#include "glog/logging.h"
#include "kernels/cpu/kernel_table.h"

namespace sluice::kernels::cpu {

void StepPlan::Begin(const StepBatch& batch, const KvLayout& layout) {
  CHECK_EQ(batch.row_begin.size(), batch.context_len.size() + 1);
  batch_ = batch;
  layout_ = layout;
  planned_heads_ = 0;
  positions_.resize(size_t(batch.rows()));
  blocks_.resize(size_t(batch.rows()));
  for (int seq = 0; seq < batch.seqs(); ++seq) {
    const int begin = batch.row_begin[size_t(seq)], end = batch.row_begin[size_t(seq) + 1];
    const int64_t context = batch.context_len[size_t(seq)];
    CHECK_GE(context, end - begin);
    CHECK_LE(BlocksFor(context, layout.block_size), batch.max_blocks);
    for (int row = begin; row < end; ++row) {
      const int64_t position = context - (end - row);
      positions_[size_t(row)] = position;
      blocks_[size_t(row)] = block_table(seq)[position / layout.block_size];
    }
  }
}

void StepPlan::PlanAttention(int num_heads, int parts) {
  if (planned_heads_ == num_heads && planned_parts_ == parts) return;
  planned_heads_ = num_heads;
  planned_parts_ = parts;
  CHECK_EQ(num_heads % layout_.num_kv_heads, 0);
  const int group = num_heads / layout_.num_kv_heads;
  const int heads_at_once = std::min(group, kAttentionRows);
  const int tokens_at_once = kAttentionRows / heads_at_once;
  items_.clear();
  cost_.clear();
  double total = 0;
  for (int seq = 0; seq < batch_.seqs(); ++seq) {
    const int end = batch_.row_begin[size_t(seq) + 1];
    for (int row = batch_.row_begin[size_t(seq)]; row < end; row += tokens_at_once) {
      const int tokens = std::min(tokens_at_once, end - row);
      const int64_t keys = positions_[size_t(row + tokens - 1)] + 1;
      for (int head = 0; head < num_heads;) {
        const int in_group = head % group;
        const int heads = std::min(heads_at_once, group - in_group);
        items_.push_back({seq, row, tokens, head / group, head, heads});
        total += double(keys) * (tokens * heads + 8);  // reading the keys costs about as much as eight rows
        cost_.push_back(total);
        head += heads;
      }
    }
  }
  borders_.assign(1, 0);
  for (int part = 1; part <= parts; ++part) {
    const auto it = std::upper_bound(cost_.begin(), cost_.end(), total * part / parts);
    borders_.push_back(part == parts ? items_.size() : size_t(it - cost_.begin()));
  }
}

std::span<const AttentionItem> StepPlan::share(int part) const {
  return std::span(items_).subspan(borders_[size_t(part)], borders_[size_t(part) + 1] - borders_[size_t(part)]);
}

}  // namespace sluice::kernels::cpu
