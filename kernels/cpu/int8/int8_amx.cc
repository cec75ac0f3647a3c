// int8 mode with AMX tiles for several rows and AVX-512 VNNI for one. See int8_table.h.
#include <cstdint>

#include "kernels/cpu/int8/dot_vnni.h"
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/matmul_inl.h"
#include "kernels/cpu/int8/rotation_inl.h"
#include "kernels/cpu/int8/round_inl.h"
#include "kernels/cpu/int8/tile_matmul_inl.h"
#include "kernels/cpu/vec_avx512.h"

namespace sluice::kernels::cpu {
namespace {

using avx512::Simd;

// Spelled as instructions: g++ 12 takes tile numbers from the text of a macro, and does not see that a configuration is
// read (GCC PR114098).
struct AmxTiles {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  static_assert(sizeof(Config) == 64);

  static SLUICE_INLINE void Configure(int a0, int a1) {
    Config c;
    const int rows[8] = {a0, a0, a1, a1, a0, a1, 16, 16};
    for (int t = 0; t < 8; ++t) {
      c.row_bytes[t] = 64;
      c.rows[t] = uint8_t(rows[t]);
    }
    asm volatile("ldtilecfg %0" ::"m"(c));
  }
  template <int kTile>
  static SLUICE_INLINE void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static SLUICE_INLINE void Load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
  }
  template <int kC, int kA, int kB>
  static SLUICE_INLINE void Dot() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  template <int kTile>
  static SLUICE_INLINE void Store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
  }
  static SLUICE_INLINE void Release() { asm volatile("tilerelease"); }
};

}  // namespace

constinit const Int8Table kAmxInt8 = {
    .rotate = &Rotate<Simd>,
    .round = &RoundRow<Simd>,
    .matmul = &TileMatmul<Simd, Vnni, AmxTiles>,
    .gate_up = &TileGateUp<Simd, Vnni, AmxTiles>,
};

}  // namespace sluice::kernels::cpu
