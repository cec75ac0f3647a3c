// mma.sync of the m16n8 and m8n8 shapes of sm_80, and of fp8.
//
// Fragments are as the PTX ISA draws them, seen as matrices of 32-bit words, whatever a word holds: lane l, row g = l /
// 4, word t = l % 4. A holds words (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), without those below row 8 in m8n8; B
// words (t, g), (t + 4, g); C and D elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). Products are exact;
// their sum runs along k in float, which a tensor core does in another way. Integers are exact, and wrap or saturate.
#pragma once

#include "tests/host_cuda/ptx/types.h"

namespace host_cuda::ptx {

// The last two are single bits, multiplied by and, or by xor.
enum class Element { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8, kS4, kU4, kB1And, kB1Xor };

struct MmaTile {
  Element a, b;
  int rows = 16;  // of A and D
  int words = 8;  // along k
  bool half_accumulator = false, saturate = false;
};

// d: two words a lane of f16x2, or one for each element.
void Mma(const MmaTile& tile, u32* d, const u32* a, const u32* b, const u32* c, Loc where);

template <Element kA, Element kB, int kRows, int kWords, bool kHalfAccumulator, bool kSaturate>
inline constexpr MmaTile kMmaTile{kA, kB, kRows, kWords, kHalfAccumulator, kSaturate};

template <int kD, int kA, int kB>
HOST_CUDA_CALLED Items<u32, kD> MatrixMultiply(const MmaTile& tile, Items<u32, kA> a, Items<u32, kB> b,
                                               Items<u32, kD> c, Loc where = Loc::current()) {
  Items<u32, kD> d;
  Mma(tile, d.at, a.at, b.at, c.at, where);
  return d;
}

// m8n8k4 of doubles: lane l has A (g, t), B (t, g), C and D (g, 2t), (g, 2t + 1). Fused, along k.
Items<f64, 2> MatrixMultiplyDoubles(f64 a, f64 b, Items<f64, 2> c, Loc where = Loc::current());

}  // namespace host_cuda::ptx
