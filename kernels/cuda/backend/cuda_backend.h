// The CUDA backend: kernels/backend.h on one GPU of compute capability 8.0 or more, one stream for all its work.
//
// Numerics id "cuda-bf16.1": weights and what flows between phases in bf16, sums and the residual stream in f32, K and
// V in bf16, or, "cuda-bf16.1+kv8.2", in int8 (rows/rope_kv.h). Quantised files are dequantised at load, for
// "cuda-bf16w8.1" to 8 bits with a scale for each 64 (gemm/int8_layout.h). A row's bits depend on that row and its keys
// alone; ranks that share a model get the bits of one. "cuda-bf16lt.1" multiplies steps of many rows with cuBLASLt
// (gemm/lt_gemm.h), and promises none of that.
//
// Limits: one process uses one device; a context and its pools and weights are used by one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/plugin/cuda_plugin.h"

namespace sluice::kernels::cuda {

struct CudaOptions {
  int device = 0;
  bool graphs = true;  // record steps of decode rows and replay them
  KvDType kv = KvDType::kBF16;
  // For contexts of several ranks (ContextLimits::collective), one process and one device each.
  std::string nccl_library;                         // empty: libnccl.so.2, where the system's loader finds it
  absl::Duration rank_timeout = absl::Seconds(30);  // for ranks to come, and of a step: then one counts as lost
  CudaWeights weights = CudaWeights::kBf16;
  CudaGemm gemm = CudaGemm::kOwn;
  int gemm_rows = 65;            // cuBLASLt takes products of so many rows or more
  std::string cublaslt_library;  // as LtLibrary::Load's
};

// FAILED_PRECONDITION with one clear line where there is no usable device, or no cuBLASLt that was asked for by name.
absl::StatusOr<std::unique_ptr<Backend>> NewCudaBackend(const CudaOptions& options);

}  // namespace sluice::kernels::cuda
