// ldmatrix, stmatrix and movmatrix: lane l holds word l % 4 of row l / 4 of an 8x8 matrix of halves, or of its
// transpose.
#pragma once

#include "tests/host_cuda/ptx/memory.h"

namespace host_cuda::ptx {

// Row i of the matrices is what lane i's row is; each lane gets word l % 4 of row l / 4 of every matrix, or of its
// transpose.
void ExchangeRows(const Items<u32, 4>* row, int matrices, bool transpose, u32* out, Loc where);
void CollectRows(const u32* in, int matrices, bool transpose, Items<u32, 4>* row, Loc where);

template <int kMatrices>
HOST_CUDA_CALLED Items<u32, kMatrices> LoadMatrix(SharedWindow window, u64 address, bool transpose,
                                                  Loc where = Loc::current()) {
  Items<u32, 4> row{};
  if (Self().lane < 8 * kMatrices) row = Load<u32, 4, Space::kShared>(window, address, where);
  Items<u32, kMatrices> out;
  ExchangeRows(&row, kMatrices, transpose, out.at, where);
  return out;
}

template <int kMatrices>
HOST_CUDA_CALLED void StoreMatrix(SharedWindow window, u64 address, Items<u32, kMatrices> in, bool transpose,
                                  Loc where = Loc::current()) {
  Items<u32, 4> row{};
  CollectRows(in.at, kMatrices, transpose, &row, where);
  if (Self().lane < 8 * kMatrices) Store<u32, 4, Space::kShared>(window, address, row, where);
}

HOST_CUDA_CALLED u32 MoveMatrixTransposed(u32 in, Loc where = Loc::current()) {
  Items<u32, 4> row{};
  CollectRows(&in, 1, false, &row, where);
  u32 out = 0;
  ExchangeRows(&row, 1, true, &out, where);
  return out;
}

}  // namespace host_cuda::ptx
