#include "kernels/cuda/decode_attention.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kBlock = 16;

struct Shape {
  int heads, kv_heads, head_dim;
  std::vector<int> contexts;
};

// A pool whose blocks lie in any order; what no context reaches is not a number.
struct Problem {
  Shape shape;
  int max_blocks = 0;
  std::vector<__nv_bfloat16> q, kv;
  std::vector<int32_t> table, contexts;
  float scale = 0;

  Problem(const Shape& s, uint64_t seed) : shape(s), scale(1 / std::sqrt(float(s.head_dim))) {
    Numbers numbers(seed);
    contexts.assign(s.contexts.begin(), s.contexts.end());
    const int longest = *std::max_element(contexts.begin(), contexts.end());
    max_blocks = (longest + kBlock - 1) / kBlock + 1;
    std::vector<int32_t> ids(contexts.size() * size_t(max_blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
    table = ids;
    q = numbers.Bf16(contexts.size() * size_t(s.heads * s.head_dim), 2);
    const uint16_t nan = 0x7fff;
    kv.resize(ids.size() * 2 * size_t(s.kv_heads * kBlock * s.head_dim));
    for (auto& value : kv) value = __ushort_as_bfloat16(nan);
    for (size_t row = 0; row < contexts.size(); ++row) {
      for (int token = 0; token < contexts[row]; ++token) {
        for (int is_v = 0; is_v < 2; ++is_v) {
          for (int h = 0; h < s.kv_heads; ++h) {
            for (int d = 0; d < s.head_dim; ++d) kv[At(int(row), token, is_v, h, d)] = numbers.Bf16(1)[0];
          }
        }
      }
    }
  }
  size_t At(int row, int token, int is_v, int head, int dim) const {
    const size_t block = size_t(table[size_t(row) * max_blocks + token / kBlock]);
    return (((block * 2 + is_v) * shape.kv_heads + head) * kBlock + token % kBlock) * shape.head_dim + dim;
  }

  std::vector<double> Definition() const {
    const int group = shape.heads / shape.kv_heads;
    std::vector<double> out(q.size());
    for (size_t row = 0; row < contexts.size(); ++row) {
      for (int head = 0; head < shape.heads; ++head) {
        const size_t at = (row * shape.heads + head) * shape.head_dim;
        std::vector<double> scores(size_t(contexts[row]));
        for (int t = 0; t < contexts[row]; ++t) {
          for (int d = 0; d < shape.head_dim; ++d) {
            scores[size_t(t)] += ToDouble(q[at + d]) * ToDouble(kv[At(int(row), t, 0, head / group, d)]) * scale;
          }
        }
        const double maximum = *std::max_element(scores.begin(), scores.end());
        double weight = 0;
        for (double& score : scores) weight += score = std::exp(score - maximum);
        for (int t = 0; t < contexts[row]; ++t) {
          for (int d = 0; d < shape.head_dim; ++d) {
            out[at + d] += scores[size_t(t)] / weight * ToDouble(kv[At(int(row), t, 1, head / group, d)]);
          }
        }
      }
    }
    return out;
  }

  // Of the rows [first, first + count) alone.
  std::vector<__nv_bfloat16> Run(int first, int count) const {
    const size_t width = size_t(shape.heads) * shape.head_dim;
    DeviceArray<__nv_bfloat16> q_device({q.begin() + first * width, q.begin() + (first + count) * width});
    DeviceArray<__nv_bfloat16> kv_device(kv), out(count * width);
    DeviceArray<int32_t> table_device(
        {table.begin() + first * max_blocks, table.begin() + (first + count) * max_blocks});
    DeviceArray<int32_t> contexts_device({contexts.begin() + first, contexts.begin() + first + count});
    DecodeAttentionArgs args;
    args.q = q_device.data();
    args.kv = kv_device.data();
    args.block_table = table_device.data();
    args.context_len = contexts_device.data();
    args.out = out.data();
    args.rows = count;
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.max_blocks = max_blocks;
    args.max_context = *std::max_element(contexts.begin() + first, contexts.begin() + first + count);
    args.scale = scale;
    DeviceArray<unsigned char> workspace(DecodeAttentionWorkspace(args));
    args.workspace = workspace.data();
    Check(DecodeAttention(args, nullptr));
    return out.Read();
  }
};

class DecodeAttentionShapes : public testing::TestWithParam<Shape> {};

TEST_P(DecodeAttentionShapes, AgreesWithTheDefinitionAndARowWithItselfAlone) {
  SLUICE_NEEDS_DEVICE();
  const Problem problem(GetParam(), 7);
  const int rows = int(problem.contexts.size());
  const std::vector<__nv_bfloat16> got = problem.Run(0, rows);
  // Weights and the result are rounded to bf16 (2^-9 each); values are of size one.
  EXPECT_LE(WorstError(got, problem.Definition(), 1.0), 0.01);
  const size_t width = got.size() / rows;
  for (int row = 0; row < rows; ++row) {
    EXPECT_TRUE(SameBits(problem.Run(row, 1), {got.begin() + row * width, got.begin() + (row + 1) * width})) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeAttentionShapes,
                         testing::Values(Shape{1, 1, 64, {1}}, Shape{9, 3, 64, {1, 15, 16, 17, 40}},
                                         Shape{4, 1, 128, {33, 5}}, Shape{16, 1, 64, {70}},
                                         Shape{6, 2, 64, {255, 256, 257}}, Shape{2, 2, 128, {600}}));

TEST(DecodeAttention, RefusesWhatItCannotDo) {
  SLUICE_NEEDS_DEVICE();
  DecodeAttentionArgs good;
  good.rows = 0;
  good.heads = 4;
  good.kv_heads = 2;
  good.head_dim = 64;
  good.max_blocks = 2;
  good.max_context = 32;
  EXPECT_EQ(DecodeAttention(good, nullptr), cudaSuccess) << "no rows";
  const auto bad = [&](auto change) {
    DecodeAttentionArgs args = good;
    args.rows = 1;
    change(args);
    EXPECT_EQ(DecodeAttention(args, nullptr), cudaErrorInvalidValue);
  };
  bad([](auto& a) { a.head_dim = 80; });
  bad([](auto& a) { a.heads = 5; });
  bad([](auto& a) { a.heads = 34; });
  bad([](auto& a) { a.max_context = 33; });
  bad([](auto& a) { a.max_context = 0; });
}

}  // namespace
}  // namespace sluice::kernels::cuda
