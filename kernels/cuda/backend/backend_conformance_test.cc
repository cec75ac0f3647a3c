// The CUDA backend under the suite of every backend.
#include <cuda_runtime_api.h>

#include "kernels/conformance/conformance.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::conformance {
namespace {

void Copy(void* to, const void* from, size_t bytes) {
  cuda::Check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

std::vector<Subject> Subjects() {
  if (!cuda::HasDevice()) return {};
  return {{.name = "cuda_bf16",
           .numerics_id = "cuda-bf16.1",
           .variants = {{"graphs", [] { return cuda::NewCudaBackend({}); }},
                        {"launches", [] { return cuda::NewCudaBackend({.graphs = false}); }}},
           .rms_error = 0.05,  // of tiny random models, whose outputs are mostly rounding
           .read = Copy,
           .write = Copy},
          {.name = "cuda_w8",
           .numerics_id = "cuda-bf16w8.1",
           .variants = {{"graphs", [] { return cuda::NewCudaBackend({.weights = CudaWeights::kInt8}); }},
                        {"launches",
                         [] { return cuda::NewCudaBackend({.graphs = false, .weights = CudaWeights::kInt8}); }}},
           .rms_error = 0.04,
           .read = Copy,
           .write = Copy},
          {.name = "cuda_bf16_kv8",
           .numerics_id = "cuda-bf16.1+kv8.2",
           .variants = {{"graphs", [] { return cuda::NewCudaBackend({.kv = KvDType::kInt8}); }}},
           .rms_error = 0.03,
           .read = Copy,
           .write = Copy}};
}

[[maybe_unused]] const bool registered = RegisterConformance(Subjects());

TEST(CudaConformance, HasADevice) {
  SLUICE_NEEDS_DEVICE();
}

}  // namespace
}  // namespace sluice::kernels::conformance
