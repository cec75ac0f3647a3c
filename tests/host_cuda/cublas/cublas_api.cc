// The subset of cuBLAS: dense products of column-major matrices.
#include <cublas_v2.h>

#include <algorithm>

#include "tests/host_cuda/cublas/gemm.h"
#include "tests/host_cuda/cublas/status.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
};

namespace host_cuda::blas {
namespace {

struct Operand {
  cublasOperation_t operation;
  const void* data;
  cudaDataType type;
  int ld;
  long long stride;
};

// A column-major matrix, or its transpose.
Matrix View(const Operand& o) {
  const bool plain = o.operation == CUBLAS_OP_N;
  return {o.data, o.type, plain ? 1 : o.ld, plain ? o.ld : 1, o.stride};
}

bool Fits(const Operand& o, int rows, int columns) {
  return o.ld >= std::max(1, o.operation == CUBLAS_OP_N ? rows : columns);
}

struct Scalars {
  const void *alpha, *beta;
};

cublasStatus_t Multiply(const char* name, cublasHandle_t handle, int m, int n, int k, Scalars scalars, const Operand& a,
                        const Operand& b, const Operand& c, int batches, cublasComputeType_t compute) {
  if (const auto failure = Injected(name)) return *failure;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || k < 0 || batches < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Fits(a, m, k) || !Fits(b, k, n) || !Fits(c, m, n)) return CUBLAS_STATUS_INVALID_VALUE;
  if (scalars.alpha == nullptr || scalars.beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!SumsInFloat(compute) || !Known(a.type) || !Known(c.type) || a.type != b.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (c.type != CUDA_R_32F && c.type != a.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m == 0 || n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
  Gemm gemm;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.batches = batches;
  gemm.a = View(a);
  gemm.b = View(b);
  gemm.c = gemm.d = View(c);
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    gemm.alpha.on_device = scalars.alpha;
    gemm.beta.on_device = scalars.beta;
  } else {
    gemm.alpha.value = *static_cast<const float*>(scalars.alpha);
    gemm.beta.value = *static_cast<const float*>(scalars.beta);
  }
  return EnqueueGemm(handle->stream, name, gemm) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace
}  // namespace host_cuda::blas

using host_cuda::blas::Injected;
using host_cuda::blas::Multiply;

extern "C" {

const char* cublasGetStatusName(cublasStatus_t status) {
  return host_cuda::blas::StatusName(status);
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return host_cuda::blas::StatusText(status);
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (const auto failure = Injected("cublasCreate")) return *failure;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void*, size_t) {
  return handle != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                                          long long a_stride, const void* b, cudaDataType b_type, int ldb,
                                          long long b_stride, const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long c_stride, int batches, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
  return Multiply(__func__, handle, m, n, k, {alpha, beta}, {ta, a, a_type, lda, a_stride},
                  {tb, b, b_type, ldb, b_stride}, {CUBLAS_OP_N, c, c_type, ldc, c_stride}, batches, compute);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  return Multiply(__func__, handle, m, n, k, {alpha, beta}, {ta, a, a_type, lda, 0}, {tb, b, b_type, ldb, 0},
                  {CUBLAS_OP_N, c, c_type, ldc, 0}, 1, compute);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                              const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
                              float* c, int ldc) {
  return Multiply("cublasSgemm", handle, m, n, k, {alpha, beta}, {ta, a, CUDA_R_32F, lda, 0},
                  {tb, b, CUDA_R_32F, ldb, 0}, {CUBLAS_OP_N, c, CUDA_R_32F, ldc, 0}, 1, CUBLAS_COMPUTE_32F);
}

}  // extern "C"
