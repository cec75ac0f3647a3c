// What the sampling kernels read of a step and write: at the same places in every step, copied once each way.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend/memory.h"
#include "kernels/cuda/sampling/sample.h"

namespace sluice::kernels::cuda {

class SampleBuffers {
 public:
  // For a context that samples; where the vocabulary is too large for it, limits() is nothing.
  static absl::StatusOr<SampleBuffers> Create(const ContextLimits& limits);

  const SampleLimits& limits() const { return limits_; }

  // Fills the host's copy, with rows behind the batch's, up to `rows`, that are left to the host. CHECKs that it is
  // within the limits. null: all are left to the host.
  void Fill(const SampleBatch* batch, int rows);

  // On `stream`, which must have ended what it did with the buffers before.
  cudaError_t Copy(cudaStream_t stream);

  // The rows of the last copy; `logits` and `maxima` as in SampleArgs.
  cudaError_t Launch(float* logits, float* maxima, int rows, int vocab, cudaStream_t stream) const;

  // Brings the results of the batch of the last Fill; they are in its spans after Take, once the stream has ended.
  // Returns the bytes in *bytes.
  cudaError_t Fetch(cudaStream_t stream, int64_t* bytes);
  void Take() const;

 private:
  SampleRow* rows() const { return static_cast<SampleRow*>(host_in_.get()); }

  SampleLimits limits_;
  PinnedMemory host_in_, host_out_;
  DeviceMemory device_in_;   // SampleRow [limits.rows], then LogitEdit [limits.edits]
  DeviceMemory device_out_;  // SampledToken [limits.rows], then [limits.rows][limits.tops]
  DeviceMemory workspace_;
  const SampleBatch* batch_ = nullptr;
  int used_rows_ = 0, used_edits_ = 0;
};

}  // namespace sluice::kernels::cuda
