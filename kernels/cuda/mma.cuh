// Matrix fragments of a warp: D[16][8] += A[16][16] B[16][8] in bf16 with f32 sums (mma.sync m16n8k16, sm_80), and
// loading them from shared memory (ldmatrix).
//
// Lane l of a warp holds, with g = l / 4 and t = l % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   A: a[0] = (g, 2t..2t+1)   a[1] = (g + 8, 2t..)   a[2] = (g, 2t + 8..)   a[3] = (g + 8, 2t + 8..)
//   B: b[0] = (2t..2t+1, g)   b[1] = (2t + 8.., g)
//   D: d[0..1] = (g, 2t..2t+1)   d[2..3] = (g + 8, 2t..2t+1)
// Two bf16 in a register, the one with the lower index in the lower half.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/async_copy.cuh"

namespace sluice::kernels::cuda {

__device__ inline void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices; lanes 8i..8i+7 give the addresses of the rows of matrix i, 16 bytes each.
__device__ inline void LoadMatrices4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// The same, each matrix transposed.
__device__ inline void LoadMatrices4Transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

__device__ inline uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace sluice::kernels::cuda
