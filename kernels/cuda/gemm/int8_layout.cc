#include "kernels/cuda/gemm/int8_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/dequant.h"

namespace sluice::kernels::cuda {
namespace {

constexpr float kMostCode = 127;

// Of 64 elements; nearest even, so that the largest is at most half a step beyond 127 and is held back to it.
uint16_t ScaleOf(const float* x) {
  float largest = 0;
  bool numbers = true;
  for (int i = 0; i < kInt8TileColumns; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    numbers = numbers && std::isfinite(x[i]);
  }
  return F32ToBF16(numbers ? largest / kMostCode : std::nanf(""));
}

unsigned char CodeOf(float x, float scale) {
  if (!(scale > 0)) return std::isnan(scale) ? kInt8Zero + 1 : kInt8Zero;
  return static_cast<unsigned char>(kInt8Zero + int(std::clamp(std::nearbyint(x / scale), -kMostCode, kMostCode)));
}

}  // namespace

void PackInt8Rows(const float* rows, int64_t stride, unsigned char* tiles) {
  for (int64_t first = 0; first < stride; first += kInt8TileColumns, tiles += kInt8TileBytes) {
    for (int r = 0; r < kInt8TileRows; ++r) {
      const float* x = rows + r * stride + first;
      const uint16_t scale = ScaleOf(x);
      for (int c = 0; c < kInt8TileColumns; ++c) tiles[Int8CodeAt(r, c)] = CodeOf(x[c], BF16ToF32(scale));
      std::memcpy(tiles + kInt8TileCodes + r * int(sizeof scale), &scale, sizeof scale);
    }
  }
}

uint16_t Int8Element(const unsigned char* matrix, int64_t stride, int64_t row, int64_t column) {
  const int64_t tile = row / kInt8TileRows * (stride / kInt8TileColumns) + column / kInt8TileColumns;
  const unsigned char* at = matrix + tile * kInt8TileBytes;
  const int r = int(row % kInt8TileRows);
  uint16_t scale;
  std::memcpy(&scale, at + kInt8TileCodes + r * int(sizeof scale), sizeof scale);
  return F32ToBF16(float(at[Int8CodeAt(r, int(column % kInt8TileColumns))] - kInt8Zero) * BF16ToF32(scale));
}

}  // namespace sluice::kernels::cuda
