#include "tests/host_cuda/cublas/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/host_cuda/runtime/device_work.h"

namespace host_cuda::blas {
namespace {

constexpr int64_t kRows = 256;  // of D at once: four columns of sums stay in the first cache

size_t SizeOf(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : 2;
}

float Load(const void* data, cudaDataType type, int64_t i) {
  switch (type) {
    case CUDA_R_16BF: {
      const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[i]} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case CUDA_R_16F:
      return __half2float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

void Store(void* data, cudaDataType type, int64_t i, float value) {
  switch (type) {
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(value);
      break;
    case CUDA_R_16F:
      static_cast<__half*>(data)[i] = __float2half(value);
      break;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

// [rows, columns] of one batch as floats, columns one after the other.
std::vector<float> Packed(const Matrix& matrix, int64_t rows, int64_t columns, int64_t batch) {
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t start = batch * matrix.batch_step + c * matrix.column_step;
    for (int64_t r = 0; r < rows; ++r) {
      out[static_cast<size_t>(c * rows + r)] = Load(matrix.data, matrix.type, start + r * matrix.row_step);
    }
  }
  return out;
}

// sums[j][i] = sum over l of a[l][i] * b[j][l], for `rows` rows and `columns` (up to four) columns.
void Products(const float* a, int64_t a_step, const float* b, int64_t k, int64_t rows, int64_t columns,
              float (*sums)[kRows]) {
  for (int64_t j = 0; j < columns; ++j) std::fill(sums[j], sums[j] + rows, 0.f);
  for (int64_t l = 0; l < k; ++l) {
    const float* column = a + l * a_step;
    for (int64_t j = 0; j < columns; ++j) {
      const float factor = b[j * k + l];
      float* sum = sums[j];
      for (int64_t i = 0; i < rows; ++i) sum[i] += column[i] * factor;
    }
  }
}

void StoreBlock(const Gemm& g, int64_t batch, int64_t row, int64_t rows, int64_t column, const float* sums, float alpha,
                float beta) {
  for (int64_t i = 0; i < rows; ++i) {
    float value = alpha * sums[i];
    const int64_t r = row + i;
    if (beta != 0) {
      value += beta * Load(g.c.data, g.c.type, batch * g.c.batch_step + r * g.c.row_step + column * g.c.column_step);
    }
    if (g.bias != nullptr) value += Load(g.bias, g.bias_type, r);
    if (g.relu) value = value < 0 ? 0 : value;  // a NaN stays
    Store(const_cast<void*>(g.d.data), g.d.type, batch * g.d.batch_step + r * g.d.row_step + column * g.d.column_step,
          value);
  }
}

std::string Check(const char* name, const Matrix& matrix, int64_t rows, int64_t columns, int64_t batches) {
  if (rows == 0 || columns == 0 || batches == 0) return {};
  const int64_t last =
      (rows - 1) * matrix.row_step + (columns - 1) * matrix.column_step + (batches - 1) * matrix.batch_step;
  const std::string wrong = CheckAccess(matrix.data, static_cast<size_t>(last + 1) * SizeOf(matrix.type));
  return wrong.empty() ? "" : std::string("matrix ") + name + ": " + wrong;
}

std::string CheckAll(const Gemm& g, float beta) {
  std::string wrong = Check("A", g.a, g.m, g.k, g.batches);
  if (wrong.empty()) wrong = Check("B", g.b, g.k, g.n, g.batches);
  if (wrong.empty() && beta != 0) wrong = Check("C", g.c, g.m, g.n, g.batches);
  if (wrong.empty()) wrong = Check("D", g.d, g.m, g.n, g.batches);
  if (wrong.empty() && g.bias != nullptr) wrong = CheckAccess(g.bias, static_cast<size_t>(g.m) * SizeOf(g.bias_type));
  return wrong;
}

}  // namespace

bool Known(cudaDataType type) {
  return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

std::string Run(const Gemm& g) {
  const float alpha = g.alpha_on_device != nullptr ? *g.alpha_on_device : g.alpha;
  const float beta = g.beta_on_device != nullptr ? *g.beta_on_device : g.beta;
  const std::string wrong = CheckAll(g, beta);
  if (!wrong.empty()) return wrong;
  float sums[4][kRows];
  for (int64_t batch = 0; batch < g.batches; ++batch) {
    const std::vector<float> a = Packed(g.a, g.m, g.k, batch);  // [k][m]
    const std::vector<float> b = Packed(g.b, g.k, g.n, batch);  // [n][k]
    for (int64_t row = 0; row < g.m; row += kRows) {
      const int64_t rows = std::min(kRows, g.m - row);
      for (int64_t column = 0; column < g.n; column += 4) {
        const int64_t columns = std::min<int64_t>(4, g.n - column);
        Products(a.data() + row, g.m, b.data() + column * g.k, g.k, rows, columns, sums);
        for (int64_t j = 0; j < columns; ++j) StoreBlock(g, batch, row, rows, column + j, sums[j], alpha, beta);
      }
    }
  }
  return {};
}

cudaError_t EnqueueGemm(cudaStream_t stream, const char* name, const Gemm& gemm) {
  return Enqueue(stream, Repeatable(name, DeviceWork::Kind::kKernel, [gemm, text = std::string(name)] {
                   const std::string wrong = Run(gemm);
                   if (!wrong.empty()) DeviceFault(cudaErrorIllegalAddress, text + " uses what it must not: " + wrong);
                 }));
}

}  // namespace host_cuda::blas
