// The phases of kernels/backend.h as launches on a device's stream. Nothing waits before Finish, nothing is allocated
// after NewActivation. The first error stays, and Finish reports it with the phase that it came from.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/backend/device.h"
#include "kernels/cuda/backend/kv_pool.h"
#include "kernels/cuda/backend/memory.h"
#include "kernels/cuda/backend/rank_exchange.h"
#include "kernels/cuda/backend/sample_buffers.h"
#include "kernels/cuda/backend/step_buffers.h"
#include "kernels/cuda/backend/step_graphs.h"
#include "kernels/cuda/backend/storage.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/lt_gemm.h"

namespace sluice::kernels::cuda {

class CudaContext final : public Context {
 public:
  // `device` outlives the context. lt: null for our own products alone.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(const ContextLimits& limits, const Device& device,
                                                             const CudaOptions& options, const LtLibrary* lt);

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
  void Sample(const SampleParams& p) override;
  SampleLimits sample_limits() const override { return samples_.limits(); }
  int64_t bytes_to_host() const override { return bytes_to_host_; }
  void AwaitIssued() override;
  absl::Status Finish() override;

  bool Replay(float* logits, float* maxima) override;
  bool BeginCapture() override;
  void EndCapture() override;

 private:
  // Logits that Finish brings to the host, of the rows that are not sampled.
  struct Wanted {
    float *logits = nullptr, *maxima = nullptr;
    int64_t first = 0, count = 0, vocab = 0;  // columns [first, first + count)
  };

  CudaContext(const ContextLimits& limits, const Device& device, const CudaOptions& options)
      : limits_(limits), device_(device), use_graphs_(options.graphs), gemm_rows_(options.gemm_rows) {}
  absl::Status StartLt(const LtLibrary& lt);
  absl::Status Meet(const CudaOptions& options);
  void Note(const absl::Status& status);
  void Await();
  void FindMaxima();  // of the logits that this rank has
  bool leads() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  void Launch();
  absl::Status Allocate();
  void Note(cudaError_t error, const char* phase);
  void Norm(const Activation* x, const Weight* weight, float eps, const int32_t* chosen, int rows, const char* phase);
  float* device_maxima() const {
    return static_cast<float*>(logits_.get()) + int64_t(limits_.max_logits) * limits_.max_vocab;
  }
  // Logits and maxima of the rows [begin, end).
  void FetchLogits(int begin, int end);
  void FetchResults();
  // The normed rows by these parts.
  void Multiply(GemmArgs args, const char* phase);

  const ContextLimits limits_;
  const Device& device_;
  const bool use_graphs_;
  const int gemm_rows_;
  absl::Status status_;
  KvLayout layout_;
  AttentionShape shape_;
  StepBuffers step_;
  int rows_ = 0, num_logits_ = 0;  // with those that pad a step that may be replayed
  int batch_logits_ = 0;
  bool alike_ = false;  // the step is of decode rows, padded to rows_
  DeviceMemory lt_space_;
  std::unique_ptr<LtGemm> lt_;           // null: our own products alone
  std::set<int> met_;                    // rows of steps that the library has computed
  std::unique_ptr<RankExchange> ranks_;  // null: alone
  StepGraphs graphs_;                    // behind the ranks: they go first
  DeviceMemory normed_;                  // bf16 [max_rows][PaddedRow(max_hidden)]
  DeviceMemory logits_;  // f32 [max_logits][max_vocab], then the maxima [max_logits][NumLogitBlocks(max_vocab)]
  SampleBuffers samples_;
  std::vector<bool> on_host_;  // [batch_logits_] whether the host wants the logits
  int64_t bytes_to_host_ = 0;
  DeviceMemory gemm_space_, attention_space_;
  size_t gemm_bytes_ = 0;
  Wanted wanted_;  // of the step; in a replayed one all but the places is as recorded
};

}  // namespace sluice::kernels::cuda
