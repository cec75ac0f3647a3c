// mma.sync in every shape and type that the translator accepts, against a product of plain matrices. The fragments are
// those of the PTX ISA's pictures, written down here a second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/testing/opcode_meanings.h"
#include "tests/host_cuda/testing/run.h"

namespace host_cuda::testing {
namespace {

struct MmaForm {
  const char* kernel;
  int rows, k;
  std::string_view d, a, b;
  bool saturate;
  std::string_view how;  // and, xor, of single bits
};

#include "tests/host_cuda/ptx/mma_forms.h"  // kForms, from ../translate/make_mma_test.py

int BitsOf(std::string_view type) {
  if (type == "f64") return 64;
  if (type == "tf32") return 32;
  if (type == "b1") return 1;
  if (type == "s4" || type == "u4") return 4;
  return type == "f16" || type == "bf16" ? 16 : 8;
}

// Integers that the type holds exactly, and whose sums the accumulator does, too.
int Least(std::string_view type) {
  return type == "s8" ? -128 : type == "s4" ? -8 : type == "u8" || type == "u4" || type == "b1" ? 0 : -4;
}
int Most(std::string_view type) {
  if (type == "u8") return 255;
  if (type == "s8") return 127;
  if (type == "u4") return 15;
  if (type == "s4") return 7;
  return type == "b1" ? 1 : 4;
}

template <class R>
u64 Search(int value) {
  return R::Nearest(value, true);
}
u64 Encode(std::string_view type, int value) {
  if (type == "f64") return std::bit_cast<u64>(static_cast<f64>(value));
  // The low bits of tf32 are nobody's.
  if (type == "tf32") return std::bit_cast<u32>(static_cast<f32>(value)) | 0x1abcu;
  if (type == "f16") return Search<HalfReference>(value);
  if (type == "bf16") return Search<BrainReference>(value);
  if (type == "e4m3") return Search<Reference<4, 3, false>>(value);
  if (type == "e5m2") return Search<Reference<5, 2, true>>(value);
  return static_cast<u32>(value) & ((1u << BitsOf(type)) - 1);
}

struct Place {
  int row, column;
};
// Element i of lane l's registers of A (seen from B: of its transpose). A register holds `per` elements of a row;
// registers go down the row blocks first, and then along k.
Place InA(int lane, int i, int per, int row_blocks) {
  const int reg = i / per;
  return {lane / 4 + 8 * (reg % row_blocks), lane % 4 * per + i % per + 4 * per * (reg / row_blocks)};
}
Place InC(int lane, int i) {
  return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}

// What a kernel of mma_forms loads, and what it stores.
struct Lane {
  unsigned char a[16], b[16], c[16];
};

void PutBits(unsigned char* to, int at, int bits, u64 value) {
  for (int i = 0; i < bits; ++i) {
    const int bit = at * bits + i;
    if (Bit(value, i)) to[bit / 8] = static_cast<unsigned char>(to[bit / 8] | 1 << bit % 8);
  }
}

struct Matrices {
  explicit Matrices(const MmaForm& form, std::mt19937& random)
      : a(form.rows * form.k), b(form.k * 8), c(form.rows * 8) {
    const auto fill = [&](std::vector<s64>& matrix, s64 least, s64 most) {
      for (s64& x : matrix) x = least + static_cast<s64>(random() % static_cast<u64>(most - least + 1));
    };
    fill(a, Least(form.a), Most(form.a));
    fill(b, Least(form.b), Most(form.b));
    fill(c, -4, 4);
    if (form.d == "s32") {  // near the ends, too, where it wraps or saturates
      for (size_t i = 0; i < c.size(); i += 3) c[i] += i % 2 == 0 ? INT32_MAX - 4 : INT32_MIN + 4;
    }
  }
  std::vector<s64> a, b, c;
};

std::vector<Lane> Fragments(const MmaForm& form, const Matrices& m) {
  const int bits = BitsOf(form.a), per = std::max(1, 32 / bits), row_blocks = form.rows / 8;
  const int c_bits = form.d == "f16" ? 16 : form.d == "f64" ? 64 : 32;
  std::vector<Lane> lanes(32);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < form.rows * form.k / 32; ++i) {
      const Place p = InA(lane, i, per, row_blocks);
      PutBits(lanes[lane].a, i, bits, Encode(form.a, static_cast<int>(m.a[p.row * form.k + p.column])));
    }
    for (int i = 0; i < 8 * form.k / 32; ++i) {
      const Place p = InA(lane, i, per, 1);
      PutBits(lanes[lane].b, i, bits, Encode(form.b, static_cast<int>(m.b[p.column * 8 + p.row])));
    }
    for (int i = 0; i < form.rows / 4; ++i) {
      const Place p = InC(lane, i);
      const s64 value = m.c[p.row * 8 + p.column];
      const u64 word = form.d == "s32"   ? static_cast<u32>(value)
                       : form.d == "f32" ? std::bit_cast<u32>(static_cast<f32>(value))
                                         : Encode(form.d, static_cast<int>(value));
      PutBits(lanes[lane].c, i, c_bits, word);
    }
  }
  return lanes;
}

f64 Expected(const MmaForm& form, const Matrices& m, Place p) {
  s64 sum = m.c[p.row * 8 + p.column];
  for (int k = 0; k < form.k; ++k) {
    const s64 a = m.a[p.row * form.k + k], b = m.b[k * 8 + p.column];
    sum += form.how == "xor" ? s64{a != b} : a * b;
  }
  if (form.d == "s32") sum = form.saturate ? Clamp<s32>(sum) : Wrap<s32>(static_cast<u64>(sum));
  return static_cast<f64>(sum);
}

f64 Got(std::string_view type, const unsigned char* out, int i) {
  const auto at = [=](auto value) {
    std::memcpy(&value, out + sizeof value * i, sizeof value);
    return value;
  };
  if (type == "s32") return at(s32{});
  if (type == "f32") return at(f32{});
  return type == "f64" ? at(f64{}) : HValue(at(u16{}));
}

TEST(Mma, EveryForm) {
  ASSERT_GT(std::size(kForms), 70u);
  std::mt19937 random(11);
  for (const MmaForm& form : kForms) {
    SCOPED_TRACE(form.kernel);
    const Kernel* kernel = FindKernel(form.kernel);
    ASSERT_NE(kernel, nullptr);
    for (int round = 0; round < 5; ++round) {
      const Matrices m(form, random);
      const std::vector<Lane> in = Fragments(form, m);
      std::vector<unsigned char> out(32 * 16);
      const void* const params[] = {in.data(), out.data()};
      ASSERT_EQ(RunGrid(*kernel, Launch{{1, 1, 1}, {32, 1, 1}, 0}, reinterpret_cast<const unsigned char*>(params)), "");
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < form.rows / 4; ++i) {
          ASSERT_EQ(Got(form.d, &out[16 * lane], i), Expected(form, m, InC(lane, i)))
              << "lane " << lane << " element " << i;
        }
      }
    }
  }
}

TEST(Mma, NeedsTheWholeWarp) {
  std::vector<Lane> in(32);
  std::vector<unsigned char> out(32 * 16);
  const void* const params[] = {in.data(), out.data()};
  const std::string error = RunGrid(*FindKernel(kForms[0].kernel), Launch{{1, 1, 1}, {31, 1, 1}, 0},
                                    reinterpret_cast<const unsigned char*>(params));
  EXPECT_NE(error.find("needs all lanes"), std::string::npos) << error;
}

}  // namespace
}  // namespace host_cuda::testing
