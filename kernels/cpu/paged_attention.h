// RoPE, the write of K and V, and attention over the paged pool, as a part of FusedContext.
//
// In a step of decode rows alone all three are one run of the pool of threads. Where whole items would leave threads
// unequal, as one sequence with three KV heads does two threads, the plan cuts items by length; the parts leave their
// states in a buffer, and they are merged where the next phase reads the row, so that no further run is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/step_plan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/thread_scratch.h"

namespace sluice::kernels::cpu {

class PagedAttention {
 public:
  // What a thread's scratch must hold.
  static int64_t ScratchFloats(int64_t head_dim);

  struct Parts {
    const KernelTable& floats;
    const KvTable& kv;
    ThreadPool& pool;
    StepPlan& plan;
    const ThreadScratch& scratch;
  };
  // What `parts` refers to outlives this.
  static absl::StatusOr<std::unique_ptr<PagedAttention>> Create(const Parts& parts);

  // May postpone all of it to the attention of the same layer.
  void RopeKv(const RopeKvParams& p);

  // p.out is not complete until FillRow has merged what was cut.
  void Run(const AttentionParams& p);

  // row = row `i` of an activation; where that is what the last Run gave, merged.
  void FillRow(const Activation& of, int64_t i, float* row) const;

  // Merges what the last Run gave in place, if that is `out`.
  void Merge(const Activation& out);

 private:
  explicit PagedAttention(const Parts& parts) : parts_(parts) {}

  // Plans the rotation of heads like those of the pool, if they are rotated at all.
  void Prepare(const KvLayout& layout);
  void RotateHeads(float* heads, int count) const;
  const float* CosSin(const RopeKvParams& p, int row) const;
  void PlaceQueries(const RopeKvParams& p, int row, int heads, float* q) const;
  void StoreKeys(const RopeKvParams& p, int row, int first_kv_head, int kv_heads) const;
  void MergeRow(int64_t i, float* row) const;
  void Attend(const AttentionParams& p, const AttentionItem& item, const AttentionItem* next, float* scratch) const;

  const Parts parts_;
  KvLayout layout_;  // what is planned for
  KvStrides strides_ = {};
  std::optional<Rotation> rotation_;
  HostMemory states_;                      // of parts of items
  std::optional<RopeKvParams> postponed_;  // until the attention of the same layer
  const Activation* unmerged_ = nullptr;   // the last Run's out
  int64_t first_column_ = 0;               // in it, of these heads
};

}  // namespace sluice::kernels::cpu
