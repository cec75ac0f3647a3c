// The phases of kernels/backend.h on the CPU: each is a few parallel runs of the kernels over rows, columns or heads.
// Phases run when they are issued; Finish has nothing to wait for.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/gathering.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/step_plan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/thread_scratch.h"

namespace sluice::kernels::cpu {

class CpuContext final : public Context {
 public:
  static absl::StatusOr<std::unique_ptr<CpuContext>> Create(const ContextLimits& limits, const KernelTable& kernels,
                                                            int threads);

  absl::StatusOr<std::unique_ptr<Activation>> NewActivation(int cols, ActivationUse use) override;
  void BeginStep(const StepBatch& batch, const KvLayout& layout) override;
  void Embed(const EmbedParams& p) override;
  void NormQkv(const NormQkvParams& p) override;
  void RopeKv(const RopeKvParams& p) override;
  void Attention(const AttentionParams& p) override;
  void Project(const ProjectParams& p) override;
  void GateUp(const GateUpParams& p) override;
  void Head(const HeadParams& p) override;
  void Gather(const GatherParams& p) override;
  void GatherLogits(const GatherLogitsParams& p) override;
  void Sample(const SampleParams&) override {}
  SampleLimits sample_limits() const override { return {}; }
  int64_t bytes_to_host() const override { return 0; }
  void AwaitIssued() override {}
  absl::Status Finish() override { return gathering_.Finish(); }

  bool Replay(float*, float*) override { return false; }
  bool BeginCapture() override { return false; }
  void EndCapture() override {}

 private:
  // One matrix product of a run: columns [0, w->rows()).
  struct Product {
    const CpuWeight* w;
    const CpuWeight* bias;  // or null
    float* y;
    int64_t ldy;
  };

  CpuContext(const ContextLimits& limits, const KernelTable& kernels, int threads);

  int rows() const { return plan_.batch().rows(); }

  // normed_[i] = norm(x[row_of(i)]) * weight
  template <class RowOf>
  void Normalize(int count, RowOf row_of, const Activation* x, const Weight* norm, float eps);
  MatmulArgs Args(const Product& product, const float* x, int64_t ldx, int64_t count, bool accumulate,
                  int thread) const;
  void Matmul(const Product& product, const float* x, int64_t ldx, int64_t count, bool accumulate);

  const ContextLimits limits_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  StepPlan plan_;
  ThreadScratch scratch_;
  ScratchRows normed_;  // [max_rows][max_hidden]
  ScratchRows up_;      // [max_rows][max_ffn]
  Gathering gathering_;
};

}  // namespace sluice::kernels::cpu
