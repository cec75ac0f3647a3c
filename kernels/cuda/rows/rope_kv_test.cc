#include "kernels/cuda/rows/rope_kv.h"

#include "kernels/cuda/testing/device_array.h"

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

class RopeKvShapes : public testing::TestWithParam<Shape> {};

TEST_P(RopeKvShapes, AgreesWithTheDefinitionAndWritesNothingElse) {
  SLUICE_NEEDS_DEVICE();
  const Problem p(GetParam());
  const Shape& s = p.s;
  DeviceArray<__nv_bfloat16> q(p.q), k(p.k), v(p.v), kv(p.kv);
  DeviceArray<float> rope(p.rope);
  DeviceArray<int32_t> positions(p.positions), blocks(p.blocks);
  Check(RopeKv({.q = q.data(),
                .k = k.data(),
                .v = v.data(),
                .q_stride = p.q_stride,
                .kv_stride = p.kv_stride,
                .rope = rope.data(),
                .rope_stride = p.rope_stride,
                .positions = positions.data(),
                .blocks = blocks.data(),
                .kv = kv.data(),
                .rows = int(p.positions.size()),
                .heads = s.heads,
                .kv_heads = s.kv_heads,
                .head_dim = s.head_dim,
                .pool_kv_heads = s.pool_kv_heads,
                .first_kv_head = s.first_kv_head,
                .block_size = s.block_size,
                .rotary_dim = s.rotary_dim,
                .interleaved = s.interleaved},
               nullptr));
  const std::vector<__nv_bfloat16> got_q = q.Read(), got_kv = kv.Read();
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
}

}  // namespace
}  // namespace sluice::kernels::cuda
