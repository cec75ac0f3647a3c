#include "kernels/cuda/rows/rope_kv.h"

#include <algorithm>

#include "kernels/cuda/testing/device_array.h"
#include "kernels/kv_layout.h"

namespace sluice::kernels::cuda {
namespace {

struct Shape {
  int heads, kv_heads, head_dim, rotary_dim, block_size;
  bool interleaved;
  int pool_kv_heads, first_kv_head;
};

constexpr int kBlocks = 7, kPositions = 40;

struct Problem {
  Shape s;
  std::vector<int32_t> positions = {0, 5, 16, 39, 21, 2}, blocks = {3, 0, 6, 1, -1, 5};
  int64_t q_stride, kv_stride, rope_stride;
  std::vector<__nv_bfloat16> q, k, v, kv;
  std::vector<float> rope;

  explicit Problem(const Shape& shape)
      : s(shape),
        q_stride(s.heads * s.head_dim + 3),
        kv_stride(s.kv_heads * s.head_dim + 1),
        rope_stride(s.rotary_dim + 2) {
    Numbers numbers(uint64_t(s.head_dim * 100 + s.heads));
    q = numbers.Bf16(positions.size() * size_t(q_stride));
    k = numbers.Bf16(positions.size() * size_t(kv_stride));
    v = numbers.Bf16(positions.size() * size_t(kv_stride));
    rope = numbers.Floats(size_t(kPositions * rope_stride));
    kv.assign(size_t(kBlocks * 2 * s.pool_kv_heads * s.block_size * s.head_dim), __float2bfloat16_rn(77));
  }

  // Element d of a head after its rotation.
  double Rotated(const __nv_bfloat16* head, int row, int d) const {
    if (d >= s.rotary_dim) return ToDouble(head[d]);
    const int pairs = s.rotary_dim / 2, pair = s.interleaved ? d / 2 : d % pairs;
    const int first = s.interleaved ? 2 * pair : pair, second = s.interleaved ? first + 1 : first + pairs;
    const float* table = &rope[size_t(positions[size_t(row)] * rope_stride)];
    const double c = table[pair], sine = table[pairs + pair], a = ToDouble(head[first]), b = ToDouble(head[second]);
    return d == first ? a * c - b * sine : a * sine + b * c;
  }
};

void ExpectNear(__nv_bfloat16 got, double want, const char* what, int row, int at) {
  EXPECT_NEAR(ToDouble(got), want, std::abs(want) / 256 + 1e-6) << what << " of row " << row << ", element " << at;
}

RopeKvArgs ArgsOf(const Problem& p) {
  RopeKvArgs args;
  args.q_stride = p.q_stride;
  args.kv_stride = p.kv_stride;
  args.rope_stride = p.rope_stride;
  args.rows = int(p.positions.size());
  args.heads = p.s.heads;
  args.kv_heads = p.s.kv_heads;
  args.head_dim = p.s.head_dim;
  args.pool_kv_heads = p.s.pool_kv_heads;
  args.first_kv_head = p.s.first_kv_head;
  args.block_size = p.s.block_size;
  args.rotary_dim = p.s.rotary_dim;
  args.interleaved = p.s.interleaved;
  return args;
}

// A problem's arrays on the device, with a pool of T.
template <typename T>
struct OnDevice {
  OnDevice(const Problem& p, const std::vector<T>& pool)
      : q(p.q), k(p.k), v(p.v), kv(pool), rope(p.rope), positions(p.positions), blocks(p.blocks) {}

  void Run(RopeKvArgs args) {
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.kv = kv.data();
    args.rope = rope.data();
    args.positions = positions.data();
    args.blocks = blocks.data();
    Check(RopeKv(args, nullptr));
  }

  DeviceArray<__nv_bfloat16> q, k, v;
  DeviceArray<T> kv;
  DeviceArray<float> rope;
  DeviceArray<int32_t> positions, blocks;
};

class RopeKvShapes : public testing::TestWithParam<Shape> {};

TEST_P(RopeKvShapes, AgreesWithTheDefinitionAndWritesNothingElse) {
  SLUICE_NEEDS_DEVICE();
  const Problem p(GetParam());
  const Shape& s = p.s;
  OnDevice<__nv_bfloat16> device(p, p.kv);
  device.Run(ArgsOf(p));
  const std::vector<__nv_bfloat16> got_q = device.q.Read(), got_kv = device.kv.Read();
  std::vector<__nv_bfloat16> rest = got_kv;
  for (int row = 0; row < int(p.positions.size()); ++row) {
    for (int i = 0; i < int(p.q_stride); ++i) {
      const size_t at = size_t(row * p.q_stride + i);
      if (i >= s.heads * s.head_dim) {
        EXPECT_EQ(ToDouble(got_q[at]), ToDouble(p.q[at]));
        continue;
      }
      const int d = i % s.head_dim;
      ExpectNear(got_q[at], p.Rotated(&p.q[at - size_t(d)], row, d), "q", row, i);
    }
    const int block = p.blocks[size_t(row)], slot = p.positions[size_t(row)] % s.block_size;
    if (block < 0) continue;
    for (int i = 0; i < s.kv_heads * s.head_dim; ++i) {
      const int head = i / s.head_dim, d = i % s.head_dim;
      for (const int is_v : {0, 1}) {
        const size_t at = ((size_t(block * 2 + is_v) * size_t(s.pool_kv_heads) + size_t(s.first_kv_head + head)) *
                               size_t(s.block_size) +
                           size_t(slot)) *
                              size_t(s.head_dim) +
                          size_t(d);
        const __nv_bfloat16* from = &(is_v ? p.v : p.k)[size_t(row * p.kv_stride + head * s.head_dim)];
        ExpectNear(got_kv[at], is_v ? ToDouble(from[d]) : p.Rotated(from, row, d), is_v ? "v" : "k", row, i);
        rest[at] = __float2bfloat16_rn(77);
      }
    }
  }
  EXPECT_TRUE(SameBits(rest, p.kv));
}

// What int8 makes of a head of q or k.
std::vector<double> Spread(std::vector<double> head) {
  size_t block = 1;
  while (head.size() % (2 * block) == 0) block *= 2;
  for (size_t d = 0; d < head.size(); ++d) head[d] *= uint32_t(d * 0x9e3779b1u) & 0x80000000u ? -1 : 1;
  std::vector<double> spread(head.size(), 0);
  for (size_t to = 0; to < head.size(); ++to) {
    for (size_t i = 0; i < block; ++i) {
      const int sign = __builtin_popcountll(i & (to % block)) % 2 == 0 ? 1 : -1;
      spread[to] += sign * head[to - to % block + i] / std::sqrt(double(block));
    }
  }
  return spread;
}

std::vector<double> RotatedHead(const Problem& p, const __nv_bfloat16* head, int row) {
  std::vector<double> out;
  for (int d = 0; d < p.s.head_dim; ++d) out.push_back(p.Rotated(head, row, d));
  return out;
}

// q and k are rotated and spread; each token and head of k and v is divided by its scale and rounded.
TEST_P(RopeKvShapes, Int8IsTheSpreadHeadsRounded) {
  SLUICE_NEEDS_DEVICE();
  const Problem p(GetParam());
  const Shape& s = p.s;
  const KvLayout int8{1, s.pool_kv_heads, s.head_dim, s.block_size, KvDType::kInt8};
  const std::vector<unsigned char> before(kBlocks * int8.block_bytes(), 0x5d);
  OnDevice<unsigned char> device(p, before);
  RopeKvArgs args = ArgsOf(p);
  args.int8 = true;
  device.Run(args);
  const std::vector<__nv_bfloat16> got_q = device.q.Read();
  const std::vector<unsigned char> got = device.kv.Read();
  std::vector<unsigned char> rest = got;
  for (size_t row = 0; row < p.positions.size(); ++row) {
    for (int i = 0; i < int(p.q_stride); ++i) {
      const size_t at = row * size_t(p.q_stride) + size_t(i);
      if (i >= s.heads * s.head_dim) {
        EXPECT_EQ(ToDouble(got_q[at]), ToDouble(p.q[at]));
        continue;
      }
      const int d = i % s.head_dim;
      const double want = Spread(RotatedHead(p, &p.q[at - size_t(d)], int(row)))[size_t(d)];
      EXPECT_NEAR(ToDouble(got_q[at]), want, std::abs(want) / 256 + 1e-5) << "q of row " << row << ", element " << i;
    }
    if (p.blocks[row] < 0) continue;
    const int slot = p.positions[row] % s.block_size;
    for (int i = 0; i < 2 * s.kv_heads; ++i) {
      const int is_v = i % 2, head = i / 2, in_pool = s.first_kv_head + head;
      const __nv_bfloat16* from = &(is_v ? p.v : p.k)[row * size_t(p.kv_stride) + size_t(head * s.head_dim)];
      std::vector<double> want;
      for (int d = 0; d < s.head_dim; ++d) want.push_back(ToDouble(from[d]));
      if (!is_v) want = Spread(RotatedHead(p, from, int(row)));
      double largest = 0;
      for (const double x : want) largest = std::max(largest, std::abs(x));
      float scale;
      const size_t at = int8.offset(p.blocks[row], is_v, in_pool, slot),
                   scale_at = int8.offset(p.blocks[row], is_v, in_pool, 0) + int8.scales_offset() + 4 * size_t(slot);
      std::memcpy(&scale, &got[scale_at], sizeof(scale));
      EXPECT_NEAR(scale, largest / 127, largest * 1e-6);
      for (int d = 0; d < s.head_dim; ++d) {
        const int code = int8_t(got[at + size_t(d)]);
        EXPECT_LE(std::abs(code * double(scale) - want[size_t(d)]), scale * 0.5001) << "element " << d;
      }
      std::fill_n(&rest[at], s.head_dim, 0x5d);
      std::fill_n(&rest[scale_at], sizeof(scale), 0x5d);
    }
  }
  EXPECT_EQ(rest, before);
}

// One element that is much larger than the others costs them little.
TEST(RopeKvInt8, AnOutlierIsSpread) {
  SLUICE_NEEDS_DEVICE();
  Problem p({1, 1, 128, 0, 16, false, 1, 0});
  p.k[9] = __float2bfloat16_rn(100);  // of row 0; the others are about 1
  const KvLayout layout{1, 1, 128, 16, KvDType::kInt8};
  OnDevice<unsigned char> device(p, std::vector<unsigned char>(kBlocks * layout.block_bytes(), 0x5d));
  RopeKvArgs args = ArgsOf(p);
  args.int8 = true;
  device.Run(args);
  const std::vector<unsigned char> got = device.kv.Read();
  float scale;
  std::memcpy(&scale, &got[layout.offset(p.blocks[0], 0, 0, 0) + layout.scales_offset()], sizeof(scale));
  EXPECT_LT(scale, 0.2 * 100 / 127);
}

TEST(RopeKvInt8, NoNumberIsNotLostAndZerosHaveScaleZero) {
  SLUICE_NEEDS_DEVICE();
  Problem p({1, 2, 64, 64, 16, false, 2, 0});
  p.v[5] = __ushort_as_bfloat16(0x7fff);                                      // of row 0, head 0
  for (int d = 0; d < 64; ++d) p.v[size_t(64 + d)] = __float2bfloat16_rn(0);  // head 1
  const KvLayout layout{1, 2, 64, 16, KvDType::kInt8};
  OnDevice<unsigned char> device(p, std::vector<unsigned char>(kBlocks * layout.block_bytes(), 0x5d));
  RopeKvArgs args = ArgsOf(p);
  args.int8 = true;
  device.Run(args);
  const std::vector<unsigned char> got = device.kv.Read();
  float scales[2];
  for (const int head : {0, 1}) {
    const size_t at = layout.offset(p.blocks[0], 1, head, 0) + layout.scales_offset();
    std::memcpy(&scales[head], &got[at + 4 * size_t(p.positions[0] % 16)], sizeof(float));
  }
  EXPECT_TRUE(std::isnan(scales[0]));
  EXPECT_EQ(scales[1], 0);
  EXPECT_EQ(got[layout.offset(p.blocks[0], 1, 1, p.positions[0] % 16)], 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeKvShapes,
                         testing::Values(Shape{9, 3, 64, 64, 16, true, 3, 0}, Shape{4, 2, 128, 128, 32, false, 8, 4},
                                         Shape{2, 1, 10, 6, 3, false, 1, 0}, Shape{4, 4, 20, 12, 5, true, 5, 1},
                                         Shape{3, 1, 7, 4, 16, true, 2, 1}, Shape{1, 1, 16, 0, 16, false, 1, 0}),
                         [](const auto& shape) { return "Dim" + std::to_string(shape.param.head_dim); });

TEST(RopeKv, RefusesWhatItCannotDo) {
  SLUICE_NEEDS_DEVICE();
  RopeKvArgs args{.rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 16, .pool_kv_heads = 1, .block_size = 16};
  args.rotary_dim = 3;
  EXPECT_EQ(RopeKv(args, nullptr), cudaErrorInvalidValue);
  args.rotary_dim = 18;
  EXPECT_EQ(RopeKv(args, nullptr), cudaErrorInvalidValue);
  args.rotary_dim = 16;
  args.first_kv_head = 1;
  EXPECT_EQ(RopeKv(args, nullptr), cudaErrorInvalidValue);
  args.first_kv_head = 0;
  args.head_dim = 258;
  args.int8 = true;
  EXPECT_EQ(RopeKv(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace sluice::kernels::cuda
