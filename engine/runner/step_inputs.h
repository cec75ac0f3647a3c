// The first part of a step: a plan of the scheduler as the arrays that a backend reads.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/scheduler.h"
#include "kernels/backend.h"

namespace sluice::engine {

// Keeps its buffers from step to step. The batch points into them: valid until the next Fill.
class StepInputs {
 public:
  explicit StepInputs(int block_size) : block_size_(block_size) {}

  // REQUIRES: the plan is not empty and every sequence holds the blocks of its range.
  kernels::StepBatch Fill(const StepPlan& plan);

 private:
  int block_size_;
  std::vector<int32_t> tokens_, row_begin_, context_len_, block_table_, logit_rows_;
};

}  // namespace sluice::engine
