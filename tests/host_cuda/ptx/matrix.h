// ldmatrix, stmatrix, movmatrix and mma.sync of the m16n8 shapes.
//
// Fragments are as the PTX ISA draws them, seen as matrices of 32-bit words: lane l, row g = l / 4, word t = l % 4. A
// holds words (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), B words (t, g), (t + 4, g), C and D elements (g, 2t), (g,
// 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). Products are exact in float; their sum runs along k in float, which a tensor
// core does in another way.
#pragma once

#include <array>

#include "tests/host_cuda/engine/warp.h"
#include "tests/host_cuda/ptx/memory.h"

namespace host_cuda::ptx {

enum class Element { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8 };

struct MmaTile {
  Element a, b;
  int k = 16;
  bool half_accumulator = false, saturate = false;
};

// d: four words (f32, s32), or two (f16x2).
void Mma(const MmaTile& tile, u32* d, const u32* a, const u32* b, const u32* c, const Loc& where);

// Row i of the matrices is what lane i's row is; each lane gets word l % 4 of row l / 4 of every matrix, or of its
// transpose.
void ExchangeRows(const std::array<u32, 4>* row, int matrices, bool transpose, u32* out, const Loc& where);
void CollectRows(const u32* in, int matrices, bool transpose, std::array<u32, 4>* row, const Loc& where);

template <int kMatrices>
inline std::array<u32, kMatrices> LoadMatrix(const SharedWindow& window, u64 address, bool transpose,
                                             const Loc& where = Loc::current()) {
  std::array<u32, 4> row{};
  if (Self().lane < 8 * kMatrices) row = Load<u32, 4, Space::kShared>(window, address, where);
  std::array<u32, kMatrices> out;
  ExchangeRows(&row, kMatrices, transpose, out.data(), where);
  return out;
}

template <int kMatrices>
inline void StoreMatrix(const SharedWindow& window, u64 address, const std::array<u32, kMatrices>& in, bool transpose,
                        const Loc& where = Loc::current()) {
  std::array<u32, 4> row{};
  CollectRows(in.data(), kMatrices, transpose, &row, where);
  if (Self().lane < 8 * kMatrices) Store<u32, 4, Space::kShared>(window, address, row, where);
}

inline u32 MoveMatrixTransposed(u32 in, const Loc& where = Loc::current()) {
  std::array<u32, 4> row{};
  CollectRows(&in, 1, false, &row, where);
  u32 out = 0;
  ExchangeRows(&row, 1, true, &out, where);
  return out;
}

template <int kD, int kA, int kB>
inline std::array<u32, kD> MatrixMultiply(const MmaTile& tile, const std::array<u32, kA>& a,
                                          const std::array<u32, kB>& b, const std::array<u32, kD>& c,
                                          const Loc& where = Loc::current()) {
  std::array<u32, kD> d;
  Mma(tile, d.data(), a.data(), b.data(), c.data(), where);
  return d;
}

}  // namespace host_cuda::ptx
