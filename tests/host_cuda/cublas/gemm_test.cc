// Products against a naive one in double, over random shapes, types, orders, transposes, strides and batches.
#include "tests/host_cuda/cublas/gemm.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <functional>
#include <random>

#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda::blas {
namespace {

size_t Bytes(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : 2;
}

float Get(const void* p, cudaDataType type, size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(p)[i];
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(p)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
}

void Put(void* p, cudaDataType type, size_t i, float x) {
  if (type == CUDA_R_32F) static_cast<float*>(p)[i] = x;
  if (type == CUDA_R_16F) static_cast<__half*>(p)[i] = __float2half(x);
  if (type == CUDA_R_16BF) static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16(x);
}

// A matrix as it is stored; padding and gaps hold 77.
struct Stored {
  cudaDataType type;
  int rows, columns, ld, batches;
  bool row_major;
  size_t stride;
  void* device = nullptr;

  size_t At(int batch, int r, int c) const {
    const size_t place = row_major ? static_cast<size_t>(r) * static_cast<size_t>(ld) + static_cast<size_t>(c)
                                   : static_cast<size_t>(c) * static_cast<size_t>(ld) + static_cast<size_t>(r);
    return static_cast<size_t>(batch) * stride + place;
  }
  float operator()(int batch, int r, int c) const { return Get(device, type, At(batch, r, c)); }
};

class GemmTest : public HostCudaTest {
 protected:
  Stored Make(cudaDataType type, int rows, int columns, bool row_major, int batches) {
    const int ld = (row_major ? columns : rows) + Below(5);
    Stored s{type, rows, columns, ld, batches, row_major, 0};
    s.stride =
        static_cast<size_t>(ld) * static_cast<size_t>(row_major ? rows : columns) + static_cast<size_t>(Below(9));
    const size_t count = s.stride * static_cast<size_t>(batches);
    EXPECT_EQ(cudaMalloc(&s.device, count * Bytes(type)), cudaSuccess);
    for (size_t i = 0; i < count; ++i) Put(s.device, type, i, 77);
    for (int b = 0; b < batches; ++b) {
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < columns; ++c) Put(s.device, type, s.At(b, r, c), static_cast<float>(Below(17) - 8) / 4);
      }
    }
    return s;
  }

  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool Coin() { return random_() % 2 == 0; }

  std::mt19937 random_{20261130};
};

// What lies between the elements must not change.
void ExpectOnly(const Stored& d, const std::function<double(int, int, int)>& expected, double scale) {
  std::vector<bool> used(d.stride * static_cast<size_t>(d.batches));
  for (int b = 0; b < d.batches; ++b) {
    for (int r = 0; r < d.rows; ++r) {
      for (int c = 0; c < d.columns; ++c) {
        const double want = expected(b, r, c);
        const double slack = (d.type == CUDA_R_32F   ? 1e-5
                              : d.type == CUDA_R_16F ? 1e-3
                                                     : 8e-3) *
                             (std::abs(want) + scale);
        ASSERT_NEAR(d(b, r, c), want, slack) << b << " " << r << " " << c;
        used[d.At(b, r, c)] = true;
      }
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    ASSERT_EQ(Get(d.device, d.type, i), 77) << i;
  }
}

void SetAttribute(cublasLtMatrixLayout_t layout, const Stored& s) {
  const int32_t order = s.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL, batches = s.batches;
  const int64_t stride = static_cast<int64_t>(s.stride);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order), 0);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches), 0);
  EXPECT_EQ(
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride), 0);
}

cublasLtMatrixLayout_t LayoutOf(const Stored& s) {
  cublasLtMatrixLayout_t layout = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, s.type, static_cast<uint64_t>(s.rows), static_cast<uint64_t>(s.columns),
                                       s.ld),
            0);
  SetAttribute(layout, s);
  return layout;
}

TEST_F(GemmTest, MatmulOfLtAgainstTheNaiveProduct) {
  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cudaStream_t stream = Stream();
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const int m = 1 + Below(round % 10 == 0 ? 600 : 40), n = 1 + Below(40), k = 1 + Below(70), batches = 1 + Below(3);
    const cudaDataType types[] = {CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF};
    const cudaDataType in = types[Below(3)], out = Coin() ? in : CUDA_R_32F;
    const bool ta = Coin(), tb = Coin(), with_bias = Coin(), relu = Coin();
    const Stored a = ta ? Make(in, k, m, Coin(), batches) : Make(in, m, k, Coin(), batches);
    const Stored b = tb ? Make(in, n, k, Coin(), batches) : Make(in, k, n, Coin(), batches);
    const Stored c = Make(out, m, n, Coin(), batches), d = Make(out, m, n, Coin(), batches);
    const Stored bias = Make(out, m, 1, false, 1);
    const float alpha = 0.5f, beta = Coin() ? 0.f : 2.f;

    cublasLtMatmulDesc_t about = nullptr;
    ASSERT_EQ(cublasLtMatmulDescCreate(&about, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    const int32_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = with_bias ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                        : (relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
    cublasLtMatmulDescSetAttribute(about, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    cublasLtMatmulDescSetAttribute(about, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    cublasLtMatmulDescSetAttribute(about, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(about, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.device, sizeof bias.device);
    cublasLtMatrixLayout_t la = LayoutOf(a), lb = LayoutOf(b), lc = LayoutOf(c), ld = LayoutOf(d);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, about, la, lb, lc, ld, nullptr, 1, &result, &found), 0);
    ASSERT_EQ(found, 1);
    ASSERT_EQ(cublasLtMatmul(handle, about, &alpha, a.device, la, b.device, lb, &beta, c.device, lc, d.device, ld,
                             &result.algo, nullptr, 0, stream),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ExpectOnly(
        d,
        [&](int batch, int i, int j) {
          double sum = 0;
          for (int l = 0; l < k; ++l) {
            sum += double{ta ? a(batch, l, i) : a(batch, i, l)} * double{tb ? b(batch, j, l) : b(batch, l, j)};
          }
          const double value = alpha * sum + (beta != 0 ? beta * c(batch, i, j) : 0) + (with_bias ? bias(0, i, 0) : 0);
          return relu && value < 0 ? 0 : value;
        },
        1);
    for (cublasLtMatrixLayout_t layout : {la, lb, lc, ld}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(about);
    for (const Stored* s : {&a, &b, &c, &d, &bias}) cudaFree(s->device);
  }
  cublasLtDestroy(handle);
}

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
          c,
          [&](int batch, int i, int j) {
            double sum = 0;
            for (int l = 0; l < k; ++l) {
              sum += double{ta ? a(batch, l, i) : a(batch, i, l)} * double{tb ? b(batch, j, l) : b(batch, l, j)};
            }
            return sum;
          },
          1);
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
