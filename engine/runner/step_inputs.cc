#include "engine/runner/step_inputs.h"

#include <glog/logging.h>

#include <algorithm>

#include "kernels/kv_layout.h"

namespace sluice::engine {

kernels::StepBatch StepInputs::Fill(const StepPlan& plan) {
  tokens_.clear();
  row_begin_.assign(1, 0);
  context_len_.clear();
  logit_rows_.clear();
  int max_blocks = 0;
  for (const Chunk& c : plan) {
    const int end = c.begin + c.count;
    const auto first = c.sequence->tokens.begin() + c.begin;
    tokens_.insert(tokens_.end(), first, first + c.count);
    row_begin_.push_back(int32_t(tokens_.size()));
    context_len_.push_back(end);
    if (c.samples) logit_rows_.push_back(int32_t(tokens_.size()) - 1);
    max_blocks = std::max(max_blocks, kernels::BlocksFor(end, block_size_));
  }
  block_table_.assign(plan.size() * max_blocks, 0);
  for (size_t i = 0; i < plan.size(); ++i) {
    const std::vector<int32_t>& blocks = plan[i].sequence->blocks;
    const int used = kernels::BlocksFor(context_len_[i], block_size_);
    CHECK_LE(used, int(blocks.size())) << "request " << plan[i].sequence->id << " lacks blocks";
    std::copy_n(blocks.begin(), used, block_table_.begin() + i * max_blocks);
  }
  kernels::StepBatch batch;
  batch.tokens = tokens_;
  batch.row_begin = row_begin_;
  batch.context_len = context_len_;
  batch.block_table = block_table_;
  batch.max_blocks = max_blocks;
  batch.logit_rows = logit_rows_;
  return batch;
}

}  // namespace sluice::engine
