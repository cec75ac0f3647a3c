#include "kernels/cpu/step_plan.h"

#include <algorithm>

#include "glog/logging.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/paged_kv.h"

namespace sluice::kernels::cpu {
namespace {

// A cut costs a merge: not for less than this share of what a worker does.
constexpr double kUnequal = 0.03;

// Reading the keys costs about as much as eight rows.
double CostOfKey(const AttentionItem& item) {
  return item.rows() + 8;
}

int64_t Spans(int64_t keys) {
  return (keys + kSpanKeys - 1) / kSpanKeys;
}

}  // namespace

int SplitItem::states(int64_t position) const {
  return position < first_cut ? 1 : 2 + int((position - first_cut) / kSpanKeys);
}

void StepPlan::Begin(const StepBatch& batch, const KvLayout& layout, int first_kv_head, int num_kv_heads) {
  CHECK_EQ(batch.row_begin.size(), batch.context_len.size() + 1);
  batch_ = batch;
  layout_ = layout;
  first_kv_head_ = first_kv_head;
  num_kv_heads_ = num_kv_heads > 0 ? num_kv_heads : layout.num_kv_heads;
  CHECK_LE(first_kv_head_ + num_kv_heads_, layout.num_kv_heads);
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

void StepPlan::ListWholeItems(int num_heads) {
  CHECK_EQ(num_heads % num_kv_heads_, 0);
  const int group = num_heads / num_kv_heads_;
  const int heads_at_once = std::min(group, kAttentionRows);
  const int tokens_at_once = kAttentionRows / heads_at_once;
  whole_.clear();
  cost_.clear();
  double total = 0;
  for (int seq = 0; seq < batch_.seqs(); ++seq) {
    const int end = batch_.row_begin[size_t(seq) + 1];
    for (int row = batch_.row_begin[size_t(seq)]; row < end; row += tokens_at_once) {
      const int tokens = std::min(tokens_at_once, end - row);
      const int64_t keys = positions_[size_t(row + tokens - 1)] + 1;
      for (int head = 0; head < num_heads;) {
        const int heads = std::min(heads_at_once, group - head % group);
        whole_.push_back({seq, row, tokens, first_kv_head_ + head / group, head, heads, 0, keys});
        total += double(keys) * CostOfKey(whole_.back());
        cost_.push_back(total);
        head += heads;
      }
    }
  }
}

StepPlan::Border StepPlan::PlaceBorder(double target, double share, const Border& last, int64_t state_rows,
                                       int64_t* used_rows) {
  const auto it = std::upper_bound(cost_.begin(), cost_.end(), target);
  if (it == cost_.end()) return {whole_.size(), 0};
  const size_t i = size_t(it - cost_.begin());
  if (last.item > i) return last;
  const AttentionItem& item = whole_[i];
  const double before = i == 0 ? 0 : cost_[i - 1];
  const Border nearest = target - before <= *it - target ? Border{i, 0} : Border{i + 1, 0};
  if (std::min(target - before, *it - target) < kUnequal * share) return nearest;
  const int64_t key = int64_t((target - before) / CostOfKey(item) / kSpanKeys + 0.5) * kSpanKeys;
  if (key == 0 || key >= item.end_key) return nearest;
  if (splits_.empty() || splits_.back().whole.first_row != item.first_row ||
      splits_.back().whole.first_head != item.first_head) {
    const int64_t needed = (1 + Spans(item.end_key - key)) * item.rows();
    if (*used_rows + needed > state_rows) return nearest;
    splits_.push_back({item, key});
    splits_.back().whole.states = *used_rows;
    *used_rows += needed;
  }
  return {i, key};
}

void StepPlan::CutAt(std::span<const Border> borders) {
  items_.clear();
  borders_.assign(1, 0);
  size_t next_border = 0, next_split = 0;
  for (size_t i = 0; i < whole_.size(); ++i) {
    AttentionItem part = whole_[i];
    const SplitItem* split = nullptr;
    for (; next_border < borders.size() && borders[next_border].item == i; ++next_border) {
      const int64_t key = borders[next_border].key;
      if (key > part.first_key) {
        if (split == nullptr) split = &splits_[next_split++];
        part.states = split->whole.states + split->states(part.first_key) * part.rows() - part.rows();
        part.end_key = key;
        items_.push_back(part);
        part.first_key = key;
        part.end_key = whole_[i].end_key;
      }
      borders_.push_back(items_.size());
    }
    if (split != nullptr) part.states = split->whole.states + split->states(part.first_key) * part.rows() - part.rows();
    items_.push_back(part);
  }
  borders_.resize(borders.size() + 2, items_.size());
}

void StepPlan::PlanAttention(int num_heads, int parts, int64_t state_rows) {
  if (planned_heads_ == num_heads && planned_parts_ == parts) return;
  planned_heads_ = num_heads;
  planned_parts_ = parts;
  ListWholeItems(num_heads);
  const double share = cost_.empty() ? 0 : cost_.back() / parts;
  cuts_.clear();
  splits_.clear();
  int64_t used_rows = 0;
  Border last{0, 0};
  for (int part = 1; part < parts; ++part) {
    last = PlaceBorder(share * part, share, last, state_rows, &used_rows);
    cuts_.push_back(last);
  }
  CutAt(cuts_);
}

std::span<const AttentionItem> StepPlan::share(int part) const {
  return std::span(items_).subspan(borders_[size_t(part)], borders_[size_t(part) + 1] - borders_[size_t(part)]);
}

}  // namespace sluice::kernels::cpu
