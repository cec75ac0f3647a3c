#include "tests/host_cuda/cublas/status.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/host_cuda/runtime/injection.h"

namespace host_cuda::blas {
namespace {

constexpr struct {
  cublasStatus_t code;
  const char* name;
  const char* text;  // as cublasLtGetStatusString of CUDA 13.0's own library gives it
} kCodes[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the requested functionality is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the license check failed"},
};

}  // namespace

std::optional<cublasStatus_t> Injected(const char* call) {
  const auto fail = FailsOnPurpose(call);
  if (!fail) return std::nullopt;
  for (const auto& row : kCodes) {
    if (*fail == row.name) return row.code;
  }
  std::fprintf(stderr, "host_cuda: HOST_CUDA_FAIL: no cuBLAS status is called %s\n", fail->c_str());
  std::abort();
}

bool SumsInFloat(cublasComputeType_t type) {
  return type == CUBLAS_COMPUTE_32F || type == CUBLAS_COMPUTE_32F_PEDANTIC || type == CUBLAS_COMPUTE_32F_FAST_TF32 ||
         type == CUBLAS_COMPUTE_32F_FAST_16F || type == CUBLAS_COMPUTE_32F_FAST_16BF;
}

const char* StatusName(cublasStatus_t status) {
  for (const auto& row : kCodes) {
    if (row.code == status) return row.name;
  }
  return "unknown cuBLAS status";
}

const char* StatusText(cublasStatus_t status) {
  for (const auto& row : kCodes) {
    if (row.code == status) return row.text;
  }
  return "unknown cuBLAS status";
}

}  // namespace host_cuda::blas
