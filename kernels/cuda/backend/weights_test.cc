// What weights take of a GPU's memory, and what lies there.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/backend/storage.h"
#include "kernels/cuda/gemm/int8_layout.h"
#include "kernels/cuda/testing/device_array.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int64_t kRows = 1000, kCols = 500;  // no multiples of a tile

struct Matrix {
  std::vector<float> values = Numbers(7).Floats(size_t(kRows * kCols), 0.05f);
  HostTensor f32() const { return {DType::kF32, values.data(), kRows, kCols}; }

  std::vector<uint16_t> halves;
  HostTensor bf16() {
    halves.resize(values.size());
    std::transform(values.begin(), values.end(), halves.begin(), F32ToBF16);
    return {DType::kBF16, halves.data(), kRows, kCols};
  }
};

std::unique_ptr<Backend> Make(CudaWeights weights) {
  auto made = NewCudaBackend({.weights = weights});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::unique_ptr<Weight> Linear(const Backend& backend, const HostTensor& tensor) {
  auto packed = backend.PackLinear(tensor);
  EXPECT_TRUE(packed.ok()) << packed.status();
  return *std::move(packed);
}

int64_t Taken(const Backend& backend, const std::function<void()>& doing) {
  const int64_t before = *backend.FreeMemory();
  doing();
  return before - *backend.FreeMemory();
}

template <typename T>
std::vector<T> Read(const void* from, size_t count) {
  std::vector<T> out(count);
  Check(cudaMemcpy(out.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

TEST(CudaWeights, Int8TakesAboutHalf) {
  SLUICE_NEEDS_DEVICE();
  const Matrix matrix;
  std::unique_ptr<Weight> bf16, int8;
  const auto plain = Make(CudaWeights::kBf16), small = Make(CudaWeights::kInt8);
  const int64_t of_bf16 = Taken(*plain, [&] { bf16 = Linear(*plain, matrix.f32()); });
  const int64_t of_int8 = Taken(*small, [&] { int8 = Linear(*small, matrix.f32()); });
  EXPECT_GE(of_bf16, kRows * 512 * 2);
  EXPECT_GT(of_int8, of_bf16 / 2);
  EXPECT_LT(double(of_int8), 0.53 * double(of_bf16));
}

TEST(CudaWeights, Int8IsTheRoundedMatrix) {
  SLUICE_NEEDS_DEVICE();
  const Matrix matrix;
  const auto backend = Make(CudaWeights::kInt8);
  const auto weight = Linear(*backend, matrix.f32());
  const auto& w = static_cast<const CudaWeight&>(*weight);
  ASSERT_NE(w.int8(), nullptr);
  const auto bytes = Read<unsigned char>(w.int8(), Int8Bytes(kRows, w.stride()));
  double squares = 0, errors = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < w.stride(); ++column) {
      const float got = BF16ToF32(Int8Element(bytes.data(), w.stride(), row, column));
      if (column >= kCols) {
        ASSERT_EQ(got, 0) << "behind row " << row;
        continue;
      }
      const double want = matrix.values[size_t(row * kCols + column)];
      squares += want * want;
      errors += (got - want) * (got - want);
    }
  }
  EXPECT_LT(std::sqrt(errors / squares), 0.01);
}

// An embedding that is the head as well is there once.
TEST(CudaWeights, AMatrixOfATablesRowsTakesNothing) {
  SLUICE_NEEDS_DEVICE();
  Matrix matrix;
  const auto backend = Make(CudaWeights::kBf16);
  const HostTensor tensor = matrix.bf16();
  auto table = backend->PackTable(tensor);
  ASSERT_TRUE(table.ok()) << table.status();
  std::unique_ptr<Weight> part;
  EXPECT_EQ(Taken(*backend, [&] { part = backend->LinearOfTable(**table, 64, 900); }), 0);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->rows(), 900);
  EXPECT_EQ(part->cols(), kCols);
  HostTensor rows = tensor;
  rows.data = matrix.halves.data() + 64 * kCols;
  rows.rows = 900;
  const auto own = Linear(*backend, rows);
  const auto& a = static_cast<const CudaWeight&>(*part);
  const auto& b = static_cast<const CudaWeight&>(*own);
  ASSERT_NE(a.bf16(), nullptr);
  EXPECT_EQ(Read<uint16_t>(a.bf16(), size_t(900 * a.stride())), Read<uint16_t>(b.bf16(), size_t(900 * b.stride())));
}

TEST(CudaWeights, WhatIsKeptOtherwiseIsNotShared) {
  SLUICE_NEEDS_DEVICE();
  Matrix matrix;
  const auto plain = Make(CudaWeights::kBf16), small = Make(CudaWeights::kInt8);
  auto f32 = plain->PackTable(matrix.f32());
  auto bf16 = small->PackTable(matrix.bf16());
  ASSERT_TRUE(f32.ok() && bf16.ok());
  EXPECT_EQ(plain->LinearOfTable(**f32, 0, kRows), nullptr) << "a table in f32";
  EXPECT_EQ(small->LinearOfTable(**bf16, 0, kRows), nullptr) << "matrices in int8";
}

}  // namespace
}  // namespace sluice::kernels::cuda
