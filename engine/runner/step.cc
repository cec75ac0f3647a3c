#include "engine/runner/step.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "kernels/kv_layout.h"

namespace sluice::engine {
namespace {

// A token that is not known yet is the last of its range.
void AddRows(const Chunk& c, StepInputs& in, SampleTask& task) {
  const Sequence& s = *c.sequence;
  const int known = std::min(c.begin + c.count, int(s.tokens.size()));
  in.tokens.insert(in.tokens.end(), s.tokens.begin() + c.begin, s.tokens.begin() + known);
  if (known < c.begin + c.count) {
    CHECK_EQ(known + 1, c.begin + c.count);
    task.unknown_row = int(in.tokens.size());
    in.tokens.push_back(kUnknownToken);
  }
  in.tokens.insert(in.tokens.end(), c.drafts.begin(), c.drafts.end());
}

void AddLogits(const Chunk& c, StepInputs& in, SampleTask& task) {
  const Sequence& s = *c.sequence;
  const int first_row = in.row_begin.back();
  for (int i = c.score_begin; i < c.score_begin + c.scores; ++i) {
    in.logit_rows.push_back(first_row + i - c.begin);
    task.targets.push_back(s.tokens[size_t(i) + 1]);
  }
  task.target_logprobs = s.prompt_logprobs;
  task.samples = c.samples;
  task.drafts = c.drafts;
  task.states = {s.sample};
  if (!c.samples) return;
  if (c.forks) task.states.insert(task.states.end(), s.siblings.begin(), s.siblings.end());
  for (int i = c.count - 1; i < c.rows(); ++i) in.logit_rows.push_back(first_row + i);
}

void FillBlockTable(const StepPlan& plan, int block_size, StepInputs& in) {
  for (const int32_t length : in.context_len) {
    in.max_blocks = std::max(in.max_blocks, kernels::BlocksFor(length, block_size));
  }
  in.block_table.assign(plan.chunks.size() * size_t(in.max_blocks), 0);
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const std::vector<int32_t>& blocks = plan.chunks[i].sequence->blocks;
    const int used = kernels::BlocksFor(in.context_len[i], block_size);
    CHECK_LE(used, int(blocks.size())) << "request " << plan.chunks[i].sequence->id << " lacks blocks";
    std::copy_n(blocks.begin(), used, in.block_table.begin() + int64_t(i) * in.max_blocks);
  }
}

}  // namespace

kernels::StepBatch StepInputs::batch() const {
  kernels::StepBatch b;
  b.tokens = tokens;
  b.row_begin = row_begin;
  b.context_len = context_len;
  b.block_table = block_table;
  b.max_blocks = max_blocks;
  b.logit_rows = logit_rows;
  return b;
}

StepWork MakeStep(uint64_t number, StepPlan plan, int block_size) {
  StepWork step;
  step.number = number;
  StepInputs& in = step.inputs;
  in.row_begin.push_back(0);
  for (const Chunk& c : plan.chunks) {
    SampleTask& task = step.tasks.emplace_back();
    AddRows(c, in, task);
    AddLogits(c, in, task);
    in.row_begin.push_back(int32_t(in.tokens.size()));
    in.context_len.push_back(c.begin + c.rows());
  }
  FillBlockTable(plan, block_size, in);
  step.plan = std::move(plan);
  return step;
}

}  // namespace sluice::engine
