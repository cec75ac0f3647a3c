#include "kernels/cuda/transfer/kv_copy.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/testing/device_array.h"
#include "kernels/kv_checksum.h"

namespace sluice::kernels::cuda {
namespace {

struct Shape {
  int layers, pool_blocks, heads;
  size_t head_bytes;
  int first_layer, end_layer, first_head, end_head, blocks;
};

struct Problem {
  Shape s;
  size_t plane, layer_bytes, run;
  std::vector<int32_t> blocks;
  std::vector<unsigned char> pool;

  explicit Problem(const Shape& shape)
      : s(shape),
        plane(s.heads * s.head_bytes),
        layer_bytes(size_t(s.pool_blocks) * 2 * plane),
        run(size_t(s.end_head - s.first_head) * s.head_bytes),
        blocks(size_t(s.pool_blocks)),
        pool(size_t(s.layers) * layer_bytes) {
    std::mt19937_64 rng(s.head_bytes);
    for (auto& byte : pool) byte = static_cast<unsigned char>(rng());
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), rng);
    blocks.resize(size_t(s.blocks));
  }
  // Calls visit(offset in the pool, offset in the run) for every byte, by the definition.
  template <class Visit>
  void ForEachByte(Visit visit) const {
    size_t at = 0;
    for (int layer = s.first_layer; layer < s.end_layer; ++layer) {
      for (const int32_t block : blocks) {
        for (size_t is_v = 0; is_v < 2; ++is_v) {
          for (int head = s.first_head; head < s.end_head; ++head) {
            for (size_t i = 0; i < s.head_bytes; ++i) {
              visit(size_t(layer) * layer_bytes + (size_t(block) * 2 + is_v) * plane + size_t(head) * s.head_bytes + i,
                    at++);
            }
          }
        }
      }
    }
  }
  size_t bytes() const { return size_t(s.end_layer - s.first_layer) * blocks.size() * 2 * run; }
  KvCopyArgs Args(unsigned char* device_pool, const int32_t* ids, unsigned char* to, uint64_t* sum) const {
    return {.pool = device_pool + size_t(s.first_layer) * layer_bytes,
            .layer_bytes = layer_bytes,
            .block_bytes = 2 * plane,
            .plane_bytes = plane,
            .first_byte = size_t(s.first_head) * s.head_bytes,
            .run_bytes = run,
            .blocks = ids,
            .num_blocks = s.blocks,
            .layers = s.end_layer - s.first_layer,
            .run = to,
            .checksum = sum};
  }
};

uint64_t SumOf(const std::vector<unsigned char>& run) {
  uint64_t sum = 0;
  for (size_t at = 0; at < run.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &run[at], std::min<size_t>(8, run.size() - at));
    sum += Mix(word, at / 8);
  }
  return sum;
}

class KvCopyShapes : public testing::TestWithParam<Shape> {};

TEST_P(KvCopyShapes, GathersAndScattersTheBytesOfThePartAndSumsThem) {
  SLUICE_NEEDS_DEVICE();
  const Problem p(GetParam());
  std::vector<unsigned char> want(p.bytes());
  p.ForEachByte([&](size_t in_pool, size_t in_run) { want[in_run] = p.pool[in_pool]; });

  DeviceArray<unsigned char> pool(p.pool), run(p.bytes());
  DeviceArray<int32_t> ids(p.blocks);
  DeviceArray<uint64_t> sum(std::vector<uint64_t>{7});
  Check(GatherKv(p.Args(pool.data(), ids.data(), run.data(), sum.data()), nullptr));
  EXPECT_TRUE(SameBits(run.Read(), want));
  EXPECT_EQ(sum.Read()[0], 7 + SumOf(want));
  EXPECT_TRUE(SameBits(pool.Read(), p.pool)) << "a gather writes nothing";

  const std::vector<unsigned char> before(p.pool.size(), 0x77);
  std::vector<unsigned char> after = before;
  p.ForEachByte([&](size_t in_pool, size_t in_run) { after[in_pool] = want[in_run]; });
  DeviceArray<unsigned char> other(before), in(want);
  DeviceArray<uint64_t> landed(std::vector<uint64_t>{0});
  Check(ScatterKv(p.Args(other.data(), ids.data(), in.data(), landed.data()), nullptr));
  EXPECT_TRUE(SameBits(other.Read(), after)) << "the part and nothing else";
  EXPECT_EQ(landed.Read()[0], SumOf(want));
}

INSTANTIATE_TEST_SUITE_P(Shapes, KvCopyShapes,
                         testing::Values(Shape{3, 7, 4, 256, 1, 3, 1, 3, 4}, Shape{1, 1, 1, 16, 0, 1, 0, 1, 1},
                                         Shape{2, 5, 3, 60, 0, 2, 1, 2, 3}, Shape{2, 4, 3, 7, 1, 2, 0, 3, 4},
                                         Shape{4, 9, 8, 2048, 0, 4, 4, 8, 9}, Shape{1, 3, 2, 1, 0, 1, 1, 2, 1}),
                         [](const auto& shape) { return "HeadBytes" + std::to_string(shape.param.head_bytes); });

TEST(KvCopy, RefusesNothing) {
  SLUICE_NEEDS_DEVICE();
  EXPECT_EQ(GatherKv({}, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace sluice::kernels::cuda
