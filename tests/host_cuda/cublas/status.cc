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
} kCodes[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR"},
};

}  // namespace

std::optional<cublasStatus_t> Injected(const char* call) {
  const auto fail = TheFailurePlan().Next(call);
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

}  // namespace host_cuda::blas

extern "C" {

const char* cublasGetStatusName(cublasStatus_t status) {
  for (const auto& row : host_cuda::blas::kCodes) {
    if (row.code == status) return row.name;
  }
  return "unknown cuBLAS status";
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return cublasGetStatusName(status);
}

}  // extern "C"
