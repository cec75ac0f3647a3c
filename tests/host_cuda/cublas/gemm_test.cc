// cuBLAS' products against a naive one in double, over transposes, strides and batches.
#include "tests/host_cuda/cublas/gemm.h"

#include <cublas_v2.h>

#include "tests/host_cuda/cublas/testing/matrices.h"

namespace host_cuda::blas {
namespace {

TEST_F(GemmTest, StridedBatchedOfCublas) {
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cudaStream_t stream = Stream();
  ASSERT_EQ(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const int m = 37, n = 11, k = 23, batches = 3;
      const Stored a = ta ? Make(CUDA_R_16BF, k, m, false, batches) : Make(CUDA_R_16BF, m, k, false, batches);
      const Stored b = tb ? Make(CUDA_R_16BF, n, k, false, batches) : Make(CUDA_R_16BF, k, n, false, batches);
      const Stored c = Make(CUDA_R_32F, m, n, false, batches);
      const float alpha = 1, beta = 0;
      ASSERT_EQ(cublasGemmStridedBatchedEx(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n,
                                           k, &alpha, a.device, a.type, a.ld, static_cast<long long>(a.stride),
                                           b.device, b.type, b.ld, static_cast<long long>(b.stride), &beta, c.device,
                                           c.type, c.ld, static_cast<long long>(c.stride), batches, CUBLAS_COMPUTE_32F,
                                           CUBLAS_GEMM_DEFAULT),
                CUBLAS_STATUS_SUCCESS);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      ExpectOnly(
          c, [&](int batch, int i, int j) { return Product(a, ta, b, tb, batch, i, j); }, 1);
    }
  }
  cublasDestroy(handle);
}

TEST_F(GemmTest, WithBetaZeroCIsNotRead) {
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  float *a = Device<float>(4), *b = Device<float>(4), *c = Device<float>(4);  // c is fresh: not a number
  for (int i = 0; i < 4; ++i) a[i] = b[i] = 1;
  const float one = 1, zero = 0;
  ASSERT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 2, b, 2, &zero, c, 2),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(c[3], 2.f);
  cublasDestroy(handle);
}

TEST_F(GemmTest, RefusesWhatTheRealOneRefuses) {
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  float* p = Device<float>(100);
  const float one = 1;
  EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 2, 2, &one, p, 3, p, 2, &one, p, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, p, CUDA_R_8I, 2, p, CUDA_R_8I, 2, &one, p,
                         CUDA_R_32I, 2, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_NOT_SUPPORTED);
  cublasDestroy(handle);
  Fresh({{"HOST_CUDA_FAIL", "cublasCreate:1=CUBLAS_STATUS_ALLOC_FAILED"}});
  EXPECT_EQ(cublasCreate(&handle), CUBLAS_STATUS_ALLOC_FAILED);
}

TEST_F(GemmTest, AnOverrunOfAMatrixIsNamed) {
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  float *a = Device<float>(16), *b = Device<float>(16), *c = Device<float>(15);
  const float one = 1, zero = 0;
  ASSERT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a, 4, b, 4, &zero, c, 4),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_THAT(TakeReports(),
              testing::Contains(testing::HasSubstr(
                  "cublasSgemm uses what it must not: matrix D: 64 bytes at offset 0 of device memory #3")));
  cublasDestroy(handle);
}

}  // namespace
}  // namespace host_cuda::blas
