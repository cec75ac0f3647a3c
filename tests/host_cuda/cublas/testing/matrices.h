// Matrices as they are stored, for tests of products: random values, padding that must not change, a naive product.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda::blas {

inline size_t Bytes(cudaDataType type) {
  if (type == CUDA_R_8I || type == CUDA_R_8F_E4M3) return 1;
  return type == CUDA_R_32F || type == CUDA_R_32I ? 4 : 2;
}

inline float Get(const void* p, cudaDataType type, size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(p)[i];
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(p)[i]);
  if (type == CUDA_R_8I) return static_cast<const int8_t*>(p)[i];
  if (type == CUDA_R_32I) return static_cast<float>(static_cast<const int32_t*>(p)[i]);
  if (type == CUDA_R_8F_E4M3) return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(p)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
}

inline void Put(void* p, cudaDataType type, size_t i, float x) {
  if (type == CUDA_R_32F) static_cast<float*>(p)[i] = x;
  if (type == CUDA_R_16F) static_cast<__half*>(p)[i] = __float2half(x);
  if (type == CUDA_R_16BF) static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16(x);
  if (type == CUDA_R_8I) static_cast<int8_t*>(p)[i] = static_cast<int8_t>(x);
  if (type == CUDA_R_32I) static_cast<int32_t*>(p)[i] = static_cast<int32_t>(x);
  if (type == CUDA_R_8F_E4M3) static_cast<__nv_fp8_e4m3*>(p)[i] = __nv_fp8_e4m3(x);
}

// What padding and gaps hold; every type has it.
constexpr float kGap = 80;

// A matrix as it is stored, on the device.
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
  // `step`: of the leading dimension.
  Stored Make(cudaDataType type, int rows, int columns, bool row_major, int batches, int step = 1) {
    const int ld = (row_major ? columns : rows) + Below(5) * step;
    Stored s{type, rows, columns, ld, batches, row_major, 0};
    s.stride =
        static_cast<size_t>(ld) * static_cast<size_t>(row_major ? rows : columns) + static_cast<size_t>(Below(9));
    const size_t count = s.stride * static_cast<size_t>(batches);
    EXPECT_EQ(cudaMalloc(&s.device, count * Bytes(type)), cudaSuccess);
    for (size_t i = 0; i < count; ++i) Put(s.device, type, i, kGap);
    for (int b = 0; b < batches; ++b) {
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < columns; ++c) Put(s.device, type, s.At(b, r, c), Value(type));
      }
    }
    return s;
  }

  float Value(cudaDataType type) {
    const bool whole = type == CUDA_R_8I || type == CUDA_R_32I;
    return static_cast<float>(whole ? Below(255) - 127 : Below(17) - 8) / (whole ? 1 : 4);
  }

  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool Coin() { return random_() % 2 == 0; }

  std::mt19937 random_{20261130};
};

// op(A) op(B) at one place, naively.
inline double Product(const Stored& a, bool ta, const Stored& b, bool tb, int batch, int i, int j) {
  double sum = 0;
  const int k = ta ? a.rows : a.columns;
  for (int l = 0; l < k; ++l) {
    sum += double{ta ? a(batch, l, i) : a(batch, i, l)} * double{tb ? b(batch, j, l) : b(batch, l, j)};
  }
  return sum;
}

// What lies between the elements must not change.
inline void ExpectOnly(const Stored& d, const std::function<double(int, int, int)>& expected, double scale) {
  std::vector<bool> used(d.stride * static_cast<size_t>(d.batches));
  for (int b = 0; b < d.batches; ++b) {
    for (int r = 0; r < d.rows; ++r) {
      for (int c = 0; c < d.columns; ++c) {
        const double want = expected(b, r, c);
        const double error = d.type == CUDA_R_32I   ? 0
                             : d.type == CUDA_R_32F ? 1e-5
                             : d.type == CUDA_R_16F ? 1e-3
                                                    : 8e-3;
        const double slack = error * (std::abs(want) + scale);
        ASSERT_NEAR(d(b, r, c), want, slack) << b << " " << r << " " << c;
        used[d.At(b, r, c)] = true;
      }
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    ASSERT_EQ(Get(d.device, d.type, i), kGap) << i;
  }
}

}  // namespace host_cuda::blas
