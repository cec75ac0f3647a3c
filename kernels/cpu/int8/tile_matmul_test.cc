// The products on tiles, on any machine: tiles in plain C++ that do what the manual says and refuse what the hardware
// would refuse, against the scalar products to the bit. On a machine with AMX int8_kernels_test.cc runs the real ones.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/tile_matmul_inl.h"
#include "kernels/cpu/vec_scalar.h"

namespace sluice::kernels::cpu {
namespace {

struct EmulatedTiles {
  static inline int rows[8];
  static inline uint8_t bytes[8][16][64];
  static inline bool configured = false;
  static inline int configurations = 0;

  static void Configure(int a0, int a1) {
    ASSERT_TRUE(1 <= a0 && a0 <= 16 && 1 <= a1 && a1 <= 16);
    const int all[8] = {a0, a0, a1, a1, a0, a1, 16, 16};
    std::memcpy(rows, all, sizeof rows);
    std::memset(bytes, 0xee, sizeof bytes);
    configured = true;
    ++configurations;
  }
  template <int kTile>
  static void Zero() {
    ASSERT_TRUE(configured);
    std::memset(bytes[kTile], 0, sizeof bytes[kTile]);
  }
  template <int kTile>
  static void Load(const void* p, int64_t stride) {
    ASSERT_TRUE(configured);
    for (int r = 0; r < rows[kTile]; ++r) std::memcpy(bytes[kTile][r], static_cast<const char*>(p) + r * stride, 64);
  }
  template <int kTile>
  static void Store(void* p, int64_t stride) {
    ASSERT_TRUE(configured);
    for (int r = 0; r < rows[kTile]; ++r) std::memcpy(static_cast<char*>(p) + r * stride, bytes[kTile][r], 64);
  }
  // TDPBUSD: dword n of row m of C += sum over four bytes of row m, dword q of A (unsigned) and row q, dword n of B.
  template <int kC, int kA, int kB>
  static void Dot() {
    ASSERT_TRUE(configured && rows[kC] == rows[kA] && rows[kB] == 16);
    for (int m = 0; m < rows[kC]; ++m) {
      for (int n = 0; n < 16; ++n) {
        int32_t sum;
        std::memcpy(&sum, &bytes[kC][m][n * 4], 4);
        for (int q = 0; q < 16; ++q) {
          for (int i = 0; i < 4; ++i) sum += int(bytes[kA][m][q * 4 + i]) * int(int8_t(bytes[kB][q][n * 4 + i]));
        }
        std::memcpy(&bytes[kC][m][n * 4], &sum, 4);
      }
    }
  }
  static void Release() { configured = false; }
};

struct NoSingleRow {  // one row goes another way
  static constexpr int kRows = 1;
  static scalar::Simd::I Dot1(const int8_t*, const uint8_t*, int64_t) {
    ADD_FAILURE();
    return scalar::Simd::I{};
  }
  template <int kM, int kN>
  static void Dot(const int8_t* const*, const uint8_t*, int64_t, scalar::Simd::I (&)[kM][kN]) {
    ADD_FAILURE();
  }
};

TEST(TileMatmul, HasTheBitsOfTheScalarProducts) {
  std::mt19937 rng(5);
  for (const int64_t k : {64, 192, 576}) {
    for (const int64_t n : {16, 40, 64, 100}) {
      const int64_t panels = (n + 15) / 16;
      std::vector<int8_t> w(size_t(panels * 16 * k)), w2(w.size());
      for (int8_t& b : w) b = int8_t(rng());
      for (int8_t& b : w2) b = int8_t(rng());
      std::vector<float> scales(size_t(panels) * 16, 0.01f);
      std::vector<int32_t> offsets(size_t(panels) * 16);
      for (int32_t& o : offsets) o = int32_t(rng() % 10000);
      const Int8Panels gate{w.data(), scales.data(), offsets.data(), k, n},
          up{w2.data(), scales.data(), offsets.data(), k, n};
      for (const int64_t rows : {2, 7, 16, 17, 31, 32, 33, 50, 64, 70}) {
        std::vector<uint8_t> x(size_t(rows * k));
        for (uint8_t& b : x) b = uint8_t(rng());
        std::vector<float> x_scales(static_cast<size_t>(rows));
        for (float& s : x_scales) s = float(rng() % 100) * 1e-4f;
        const Int8Rows in{x.data(), x_scales.data(), rows};
        std::vector<float> a(size_t(rows * n), 1.0f), b = a;
        EmulatedTiles::configurations = 0;
        TileMatmul<scalar::Simd, NoSingleRow, EmulatedTiles>(in, gate, {a.data(), n, nullptr, true}, 0, panels);
        EXPECT_FALSE(EmulatedTiles::configured);
        if (rows % 32 == 0 || rows < 32) {
          EXPECT_EQ(EmulatedTiles::configurations, 1);
        }
        kScalarInt8.matmul(in, gate, {b.data(), n, nullptr, true}, 0, panels);
        ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * 4), 0) << rows << " rows, " << n << " x " << k;
        TileGateUp<scalar::Simd, NoSingleRow, EmulatedTiles>(in, gate, up, GateFunction::kSilu, a.data(), n, 0, panels);
        kScalarInt8.gate_up(in, gate, up, GateFunction::kSilu, b.data(), n, 0, panels);
        ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * 4), 0)
            << "gates, " << rows << " rows, " << n << " x " << k;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
