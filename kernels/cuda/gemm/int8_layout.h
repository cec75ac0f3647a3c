// How a matrix of weights lies in 8 bits, for the products of gemm.h: in tiles of 16 rows by 64 columns, each byte
// where the lane of a warp that feeds it to the tensor cores finds it (mma.cuh), and a scale of each row of a tile
// behind them.
//
//   [tile of rows][tile of columns] [half of the columns][lane][step of 16 columns][A operand 0..3][2] codes, [16]
//   scales
//
// An element is code * scale, rounded to bf16; code is a byte less 128, within -127..127, and scale is bf16. Rows and
// columns behind the matrix are zero. So 528 bits are 64 weights: 8.25 bits each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels::cuda {

inline constexpr int kInt8TileRows = 16, kInt8TileColumns = 64;
inline constexpr int kInt8TileCodes = kInt8TileRows * kInt8TileColumns;  // bytes
inline constexpr int kInt8TileBytes = kInt8TileCodes + kInt8TileRows * int(sizeof(uint16_t));
inline constexpr int kInt8Zero = 128;  // the byte of code 0

// Of a matrix; `stride`: columns, a multiple of 64.
constexpr size_t Int8Bytes(int64_t rows, int64_t stride) {
  return size_t((rows + kInt8TileRows - 1) / kInt8TileRows) * size_t(stride / kInt8TileColumns) * kInt8TileBytes;
}

// Where the code of a row and a column of a tile lies in it.
constexpr int Int8CodeAt(int row, int column) {
  const int step = column / 16, c = column % 16, lane = row % 8 * 4 + c % 8 / 2;
  return step / 2 * 512 + lane * 16 + step % 2 * 8 + (c / 8 * 2 + row / 8) * 2 + c % 2;
}

// Rounds 16 rows, [kInt8TileRows][stride], to a row of tiles. What is no number makes its scale none.
void PackInt8Rows(const float* rows, int64_t stride, unsigned char* tiles);

// The value of an element of a matrix, as bf16.
uint16_t Int8Element(const unsigned char* matrix, int64_t stride, int64_t row, int64_t column);

}  // namespace sluice::kernels::cuda
