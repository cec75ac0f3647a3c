#include "tests/host_cuda/cublas/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/host_cuda/runtime/device_work.h"

namespace host_cuda::blas {
namespace {

constexpr int64_t kRows = 256;  // of D at once: four columns of sums stay in the first cache

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
    case CUDA_R_8F_E4M3:
      return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(data)[i]);
    case CUDA_R_8I:
      return static_cast<const int8_t*>(data)[i];
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

int64_t At(const Matrix& matrix, int64_t batch, int64_t row, int64_t column) {
  return batch * matrix.batch_step + row * matrix.row_step + column * matrix.column_step;
}

// [rows, columns] of one batch in the type of the sums, columns one after the other.
template <class Sum>
std::vector<Sum> Packed(const Matrix& matrix, int64_t rows, int64_t columns, int64_t batch) {
  std::vector<Sum> out(static_cast<size_t>(rows * columns));
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      out[static_cast<size_t>(c * rows + r)] =
          static_cast<Sum>(Load(matrix.data, matrix.type, At(matrix, batch, r, c)));
    }
  }
  return out;
}

// sums[j][i] = sum over l of a[l][i] * b[j][l], for `rows` rows and `columns` (up to four) columns.
template <class Sum>
void Products(const Sum* a, int64_t a_step, const Sum* b, int64_t k, int64_t rows, int64_t columns,
              Sum (*sums)[kRows]) {
  for (int64_t j = 0; j < columns; ++j) std::fill(sums[j], sums[j] + rows, Sum{0});
  for (int64_t l = 0; l < k; ++l) {
    const Sum* column = a + l * a_step;
    for (int64_t j = 0; j < columns; ++j) {
      const Sum factor = b[j * k + l];
      Sum* sum = sums[j];
      for (int64_t i = 0; i < rows; ++i) sum[i] += column[i] * factor;
    }
  }
}

// Calls store(batch, row, column, sum) for every element of the product.
template <class Sum, class StoreOne>
void ForEveryProduct(const Gemm& g, StoreOne store) {
  Sum sums[4][kRows];
  for (int64_t batch = 0; batch < g.batches; ++batch) {
    const std::vector<Sum> a = Packed<Sum>(g.a, g.m, g.k, batch);  // [k][m]
    const std::vector<Sum> b = Packed<Sum>(g.b, g.k, g.n, batch);  // [n][k]
    for (int64_t row = 0; row < g.m; row += kRows) {
      const int64_t rows = std::min(kRows, g.m - row);
      for (int64_t column = 0; column < g.n; column += 4) {
        const int64_t columns = std::min<int64_t>(4, g.n - column);
        Products(a.data() + row, g.m, b.data() + column * g.k, g.k, rows, columns, sums);
        for (int64_t j = 0; j < columns; ++j) {
          for (int64_t i = 0; i < rows; ++i) store(batch, row + i, column + j, sums[j][i]);
        }
      }
    }
  }
}

float Activated(Activation activation, float x) {
  switch (activation) {
    case Activation::kRelu:
      return x < 0 ? 0 : x;  // a NaN stays
    case Activation::kGelu:
      return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    default:
      return x;
  }
}

float FloatOf(const Scalar& scalar) {
  return scalar.on_device != nullptr ? *static_cast<const float*>(scalar.on_device) : scalar.value;
}
int32_t WholeOf(const Scalar& scalar) {
  return scalar.on_device != nullptr ? *static_cast<const int32_t*>(scalar.on_device) : scalar.whole;
}

bool OfInts(const Gemm& g) {
  return g.d.type == CUDA_R_32I;
}

void RunInFloat(const Gemm& g) {
  float alpha = FloatOf(g.alpha);
  const float beta = FloatOf(g.beta);
  if (g.a_scale != nullptr) alpha *= *g.a_scale;
  if (g.b_scale != nullptr) alpha *= *g.b_scale;
  ForEveryProduct<float>(g, [&](int64_t batch, int64_t row, int64_t column, float sum) {
    float value = alpha * sum;
    if (beta != 0) value += beta * Load(g.c.data, g.c.type, At(g.c, batch, row, column));
    if (g.bias != nullptr) value += Load(g.bias, g.bias_type, row);
    Store(const_cast<void*>(g.d.data), g.d.type, At(g.d, batch, row, column), Activated(g.activation, value));
  });
}

void RunInInts(const Gemm& g) {
  const int32_t alpha = WholeOf(g.alpha), beta = WholeOf(g.beta);
  ForEveryProduct<int32_t>(g, [&](int64_t batch, int64_t row, int64_t column, int32_t sum) {
    int32_t value = alpha * sum;
    if (beta != 0) value += beta * static_cast<const int32_t*>(g.c.data)[At(g.c, batch, row, column)];
    static_cast<int32_t*>(const_cast<void*>(g.d.data))[At(g.d, batch, row, column)] = value;
  });
}

std::string Check(const char* name, const Matrix& matrix, int64_t rows, int64_t columns, int64_t batches) {
  if (rows == 0 || columns == 0 || batches == 0) return {};
  const int64_t last = At(matrix, batches - 1, rows - 1, columns - 1);
  const std::string wrong = CheckAccess(matrix.data, static_cast<size_t>(last + 1) * SizeOf(matrix.type));
  return wrong.empty() ? "" : std::string("matrix ") + name + ": " + wrong;
}

std::string CheckVector(const char* name, const void* p, size_t bytes) {
  const std::string wrong = p != nullptr ? CheckAccess(p, bytes) : "";
  return wrong.empty() ? "" : std::string(name) + ": " + wrong;
}

// Before the scalars on the device are read.
std::string CheckScalars(const Gemm& g) {
  for (const auto& [name, p] : {std::pair<const char*, const void*>{"alpha", g.alpha.on_device},
                                {"beta", g.beta.on_device},
                                {"the scale of A", g.a_scale},
                                {"the scale of B", g.b_scale}}) {
    if (std::string wrong = CheckVector(name, p, 4); !wrong.empty()) return wrong;
  }
  return {};
}

std::string CheckOperands(const Gemm& g) {
  const bool reads_c = OfInts(g) ? WholeOf(g.beta) != 0 : FloatOf(g.beta) != 0;
  std::string wrong = Check("A", g.a, g.m, g.k, g.batches);
  if (wrong.empty()) wrong = Check("B", g.b, g.k, g.n, g.batches);
  if (wrong.empty() && reads_c) wrong = Check("C", g.c, g.m, g.n, g.batches);
  if (wrong.empty()) wrong = Check("D", g.d, g.m, g.n, g.batches);
  if (wrong.empty()) wrong = CheckVector("bias", g.bias, static_cast<size_t>(g.m) * SizeOf(g.bias_type));
  if (wrong.empty()) wrong = CheckVector("workspace", g.workspace, g.workspace_bytes);
  return wrong;
}

}  // namespace

size_t SizeOf(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
      return 1;
    default:
      return 0;
  }
}

bool Known(cudaDataType type) {
  return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

std::string Run(const Gemm& g) {
  std::string wrong = CheckScalars(g);
  if (wrong.empty()) wrong = CheckOperands(g);
  if (!wrong.empty()) return wrong;
  if (g.workspace != nullptr) std::memset(g.workspace, 0xff, g.workspace_bytes);
  OfInts(g) ? RunInInts(g) : RunInFloat(g);
  return {};
}

cudaError_t EnqueueGemm(cudaStream_t stream, const char* name, const Gemm& gemm) {
  return Enqueue(stream, Repeatable(name, DeviceWork::Kind::kKernel, [gemm, text = std::string(name)] {
                   const std::string wrong = Run(gemm);
                   if (!wrong.empty()) DeviceFault(cudaErrorIllegalAddress, text + " uses what it must not: " + wrong);
                 }));
}

}  // namespace host_cuda::blas
