#include "kernels/cuda/backend/step_buffers.h"

#include <algorithm>
#include <cstring>

#include "glog/logging.h"

namespace sluice::kernels::cuda {
namespace {

constexpr size_t kAligned = 64;  // words

size_t RoundUp(size_t words) {
  return (words + kAligned - 1) / kAligned * kAligned;
}

}  // namespace

absl::StatusOr<StepBuffers> StepBuffers::Create(const ContextLimits& limits, const AttentionShape& shape) {
  StepBuffers b;
  b.shape_ = shape;
  b.max_context_ = limits.max_context;
  b.max_blocks_ = limits.max_blocks;
  b.capacity_ = CapacityFor(limits.max_rows, limits.max_seqs, limits.max_context, shape);
  b.capacity_rows_ = RoundUp(size_t(limits.max_rows));
  b.capacity_table_ = size_t(limits.max_seqs) * size_t(limits.max_blocks);
  b.plan_at_ = 4 * b.capacity_rows_;
  b.table_at_ = b.plan_at_ + RoundUp(b.capacity_.words());
  const size_t bytes = (b.table_at_ + b.capacity_table_) * sizeof(int32_t);
  auto host = NewPinnedMemory(bytes, "metadata of a step");
  if (!host.ok()) return host.status();
  auto device = NewDeviceMemory(bytes, "metadata of a step");
  if (!device.ok()) return device.status();
  b.host_ = *std::move(host);
  b.device_ = *std::move(device);
  return b;
}

void StepBuffers::Fill(const StepBatch& batch, int block_size, int rows) {
  CHECK_EQ(batch.row_begin.size(), batch.context_len.size() + 1);
  CHECK_GE(rows, batch.rows());
  CHECK_LE(size_t(rows), capacity_rows_);
  CHECK_LE(batch.logit_rows.size(), capacity_rows_);
  CHECK_LE(size_t(batch.seqs()) * size_t(max_blocks_), capacity_table_);
  int32_t* const words = static_cast<int32_t*>(host_.get());
  int32_t* const positions = words + capacity_rows_;
  int32_t* const blocks = words + 2 * capacity_rows_;
  std::copy(batch.tokens.begin(), batch.tokens.end(), words);
  std::copy(batch.logit_rows.begin(), batch.logit_rows.end(), words + 3 * capacity_rows_);
  for (int seq = 0; seq < batch.seqs(); ++seq) {
    const int begin = batch.row_begin[size_t(seq)], end = batch.row_begin[size_t(seq) + 1];
    const int context = batch.context_len[size_t(seq)];
    CHECK_GE(context, end - begin);
    CHECK_LE(BlocksFor(context, block_size), batch.max_blocks);
    const int32_t* table = batch.block_table.data() + size_t(seq) * size_t(batch.max_blocks);
    std::copy_n(table, BlocksFor(context, block_size), words + table_at_ + size_t(seq) * size_t(max_blocks_));
    for (int row = begin; row < end; ++row) {
      positions[row] = context - (end - row);
      blocks[row] = table[positions[row] / block_size];
    }
  }
  for (int row = batch.rows(); row < rows; ++row) {
    words[row] = positions[row] = 0;
    blocks[row] = -1;
    words[3 * capacity_rows_ + size_t(row)] = row;
  }
  used_table_ = size_t(batch.seqs()) * size_t(max_blocks_);
  used_plan_ =
      BuildAttentionPlan(batch.row_begin, batch.context_len, shape_, capacity_, {words + plan_at_, capacity_.words()});
}

AttentionCapacity StepBuffers::items() const {
  AttentionPlanHeader header;
  std::memcpy(&header, static_cast<const int32_t*>(host_.get()) + plan_at_, sizeof(header));
  return {.spans = header.spans, .merges = header.merges, .prefills = header.prefills, .partials = capacity_.partials};
}

AttentionCapacity StepBuffers::items_of(int rows) const {
  AttentionCapacity items = CapacityFor(rows, rows, max_context_, shape_);
  items.partials = capacity_.partials;
  return items;
}

cudaError_t StepBuffers::Copy(cudaStream_t stream) {
  const auto copy = [&](size_t at, size_t words) {
    return cudaMemcpyAsync(static_cast<int32_t*>(device_.get()) + at, static_cast<const int32_t*>(host_.get()) + at,
                           words * sizeof(int32_t), cudaMemcpyHostToDevice, stream);
  };
  // The plan ends where the table begins in memory, but little of it may be in use.
  if (const cudaError_t error = copy(0, plan_at_ + used_plan_); error != cudaSuccess) return error;
  return copy(table_at_, used_table_);
}

}  // namespace sluice::kernels::cuda
