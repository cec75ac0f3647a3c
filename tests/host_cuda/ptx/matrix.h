// ldmatrix, stmatrix and movmatrix: lane l holds word l % 4 of row l / 4 of an 8x8 matrix of halves, or of its
// transpose.
#pragma once

#include <array>

#include "tests/host_cuda/ptx/memory.h"

namespace host_cuda::ptx {

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

}  // namespace host_cuda::ptx
