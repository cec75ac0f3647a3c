// The phases of kernels/backend.h with packed matrices (products.h) over K and V in 16 or 8 bits (paged_kv.h). The
// residual stream and everything between products stay f32.
//
// A phase is one or two runs of the pool: few rows are normed and brought into the form of the product by every thread
// for itself, which costs less than a second run; many are shared out first. In a step of decode rows alone RoPE and
// the write of K and V are part of the attention's run (paged_attention.h). So a layer of decode rows is five runs.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/gathering.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/paged_attention.h"
#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/step_plan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/thread_scratch.h"

namespace sluice::kernels::cpu {

struct FusedKernels {
  const KernelTable& floats;
  const KvTable& kv;
};

class FusedContext final : public Context {
 public:
  // `products` outlives the context.
  static absl::StatusOr<std::unique_ptr<FusedContext>> Create(const ContextLimits& limits, const Products& products,
                                                              const FusedKernels& kernels, int threads);

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
  // Fills work [cols] with row i of a product's input.
  using FillRow = absl::FunctionRef<void(int64_t i, float* work)>;
  // The products of panels [begin, end).
  using Multiply = absl::FunctionRef<void(const ProductRows& x, int64_t begin, int64_t end)>;

  FusedContext(const ContextLimits& limits, const Products& products, const FusedKernels& kernels, int threads);

  int rows() const { return plan_.batch().rows(); }
  // Makes room for rows of `cols` in the form of products.
  absl::Status HoldRows(int64_t cols);

  // Multiplies `count` rows by `w` and those beside it, of `panels` panels in all; threads share them out by `grain`.
  void Linear(int64_t count, const Weight& w, int64_t panels, FillRow fill, Multiply multiply, int64_t grain = 1);

  const ContextLimits limits_;
  const FusedKernels kernels_;
  const Products& products_;
  ThreadPool pool_;
  StepPlan plan_;
  ThreadScratch scratch_;
  int64_t row_cols_ = 0;                                // that the rows of products have room for
  std::unique_ptr<ProductRows> shared_rows_;            // [max_rows]
  std::vector<std::unique_ptr<ProductRows>> own_rows_;  // [threads][kOwnRows]
  std::unique_ptr<PagedAttention> attention_;
  Gathering gathering_;
};

}  // namespace sluice::kernels::cpu
