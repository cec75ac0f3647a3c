// What the kernels of a step read of its batch: written on the host, copied once, at the same places in every step.
//
// A row that is not part of the batch, because a captured step has more of them, has token 0 at position 0 and no
// block, and no sequence has keys for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/backend/memory.h"

namespace sluice::kernels::cuda {

class StepBuffers {
 public:
  static absl::StatusOr<StepBuffers> Create(const ContextLimits& limits, const AttentionShape& shape);

  // Fills the host's copy, with `rows` - batch.rows() rows behind the batch that are part of nothing. CHECKs that it is
  // within the limits.
  void Fill(const StepBatch& batch, int block_size, int rows);

  // On `stream`, which must have ended what it did with the buffers before.
  cudaError_t Copy(cudaStream_t stream);

  // Device memory, as of the last copy.
  const int32_t* tokens() const { return At(0); }                       // [rows]
  const int32_t* positions() const { return At(capacity_rows_); }       // [rows]
  const int32_t* blocks() const { return At(2 * capacity_rows_); }      // [rows] of the row's slot
  const int32_t* logit_rows() const { return At(3 * capacity_rows_); }  // [logits]
  const int32_t* plan() const { return At(plan_at_); }                  // of the attention
  const int32_t* block_table() const { return At(table_at_); }          // [seqs][max_blocks]
  int max_blocks() const { return max_blocks_; }                        // the same in every step
  const AttentionCapacity& capacity() const { return capacity_; }
  // The work items of the batch; and what is launched for any batch of so many rows, one of each sequence.
  AttentionCapacity items() const;
  AttentionCapacity items_of(int rows) const;

 private:
  const int32_t* At(size_t word) const { return static_cast<const int32_t*>(device_.get()) + word; }

  AttentionShape shape_;
  int max_context_ = 0;
  AttentionCapacity capacity_;
  size_t capacity_rows_ = 0, capacity_table_ = 0;
  size_t plan_at_ = 0, table_at_ = 0;
  PinnedMemory host_;
  DeviceMemory device_;
  size_t used_plan_ = 0, used_table_ = 0;
  int max_blocks_ = 0;
};

}  // namespace sluice::kernels::cuda
