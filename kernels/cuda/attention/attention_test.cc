#include "kernels/cuda/attention/attention.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

struct Shape {
  int kv_heads, group, head_dim;
  int block_size = 16;
  KvDType dtype = KvDType::kBF16;
  int window = 0;
  float soft_cap = 0;
  bool sinks = false;
  int pool_kv_heads = 0, first_kv_head = 0;  // 0: kv_heads

  int heads() const { return kv_heads * group; }
  int width() const { return heads() * head_dim; }
};

// Consecutive rows of a sequence: its tokens [first, first + count).
struct Chunk {
  int seq, first, count;
};

using Rows = std::vector<__nv_bfloat16>;

// Sequences with queries, keys and values for every token, in a pool whose blocks lie in any order.
class Problem {
 public:
  Problem(const Shape& shape, std::vector<int> contexts, uint64_t seed = 7)
      : shape_(shape), contexts_(std::move(contexts)), numbers_(seed), scale_(1.5f / std::sqrt(float(shape.head_dim))) {
    layout_.num_layers = 1;
    layout_.num_kv_heads = shape.pool_kv_heads > 0 ? shape.pool_kv_heads : shape.kv_heads;
    layout_.head_dim = shape.head_dim;
    layout_.block_size = shape.block_size;
    layout_.dtype = shape.dtype;
    const int longest = *std::max_element(contexts_.begin(), contexts_.end());
    max_blocks_ = BlocksFor(longest, shape.block_size) + 1;
    ids_.resize(contexts_.size() * size_t(max_blocks_));
    std::iota(ids_.begin(), ids_.end(), 0);
    std::shuffle(ids_.begin(), ids_.end(), std::mt19937_64(seed));
    sinks_ = numbers_.Floats(size_t(shape.heads()), 2);
    for (int context : contexts_) {
      q_.push_back(numbers_.Bf16(size_t(context) * shape.width(), 1.5f));
      kv_.push_back(Quantise(numbers_.Floats(size_t(context) * 2 * shape.kv_heads * shape.head_dim)));
    }
  }

  const Shape& shape() const { return shape_; }
  int context(int seq) const { return contexts_[size_t(seq)]; }

  // The chunks as one batch. What none of their rows sees is not a number, and its blocks don't exist.
  // max_partials < 0: what CapacityFor gives; 0: all rows are prefilled.
  Rows Run(const std::vector<Chunk>& chunks, int max_partials = -1, int grid = 0) const {
    const int q_stride = shape_.width() + 6, out_stride = shape_.width() + 10;
    std::vector<int32_t> row_begin = {0}, context_len, table;
    Rows q;
    for (const Chunk& c : chunks) {
      for (int t = c.first; t < c.first + c.count; ++t) {
        const auto from = q_[size_t(c.seq)].begin() + ptrdiff_t(t) * shape_.width();
        q.insert(q.end(), from, from + shape_.width());
        q.resize(q.size() + size_t(q_stride - shape_.width()), __ushort_as_bfloat16(0x7fff));
      }
      row_begin.push_back(row_begin.back() + c.count);
      context_len.push_back(c.first + c.count);
    }
    const size_t rows = size_t(row_begin.back());
    const std::vector<unsigned char> kv = Pool(chunks, &table);

    AttentionArgs args;
    args.shape = {shape_.group, shape_.head_dim, shape_.window};
    const int longest = *std::max_element(context_len.begin(), context_len.end());
    args.capacity = CapacityFor(int(rows), int(chunks.size()), longest, args.shape);
    if (max_partials >= 0) args.capacity.partials = std::min(args.capacity.partials, max_partials);
    std::vector<int32_t> plan(args.capacity.words());
    BuildAttentionPlan(row_begin, context_len, args.shape, args.capacity, plan);
    if (grid > 0) args.capacity.spans = args.capacity.merges = args.capacity.prefills = grid;

    DeviceArray<__nv_bfloat16> q_device(q), out(std::vector<__nv_bfloat16>(rows * out_stride, Untouched()));
    DeviceArray<unsigned char> kv_device(kv);
    DeviceArray<unsigned char> workspace(
        std::vector<unsigned char>(AttentionWorkspace(args.capacity.partials, shape_.heads(), shape_.head_dim), 0xff));
    DeviceArray<int32_t> table_device(table), plan_device(plan);
    DeviceArray<float> sinks_device(sinks_);
    args.q = q_device.data();
    args.q_stride = q_stride;
    args.out = out.data();
    args.out_stride = out_stride;
    args.kv = kv_device.data();
    args.layout = layout_;
    args.first_kv_head = shape_.first_kv_head;
    args.kv_heads = shape_.kv_heads;
    args.block_table = table_device.data();
    args.max_blocks = max_blocks_;
    args.plan = plan_device.data();
    args.workspace = workspace.data();
    args.scale = scale_;
    args.soft_cap = shape_.soft_cap;
    args.sinks = shape_.sinks ? sinks_device.data() : nullptr;
    Check(Attention(args, nullptr));

    Rows result;
    const Rows all = out.Read();
    for (size_t row = 0; row < rows; ++row) {
      const auto from = all.begin() + ptrdiff_t(row) * out_stride;
      result.insert(result.end(), from, from + shape_.width());
      for (int i = shape_.width(); i < out_stride; ++i) {
        EXPECT_EQ(__bfloat16_as_ushort(from[i]), __bfloat16_as_ushort(Untouched())) << "padding of row " << row;
      }
    }
    return result;
  }

  // The same in double precision, from the definition.
  std::vector<double> Definition(const std::vector<Chunk>& chunks) const {
    std::vector<double> out;
    for (const Chunk& c : chunks) {
      for (int t = c.first; t < c.first + c.count; ++t) {
        for (int head = 0; head < shape_.heads(); ++head) DefineRow(c.seq, t, head, &out);
      }
    }
    return out;
  }

 private:
  // A token's keys, or values, of one head: as they are stored, and what that means.
  struct Vector {
    std::vector<unsigned char> bytes;
    float scale = 0;
    std::vector<float> values;
  };

  static __nv_bfloat16 Untouched() { return __ushort_as_bfloat16(0x7b7b); }

  std::vector<Vector> Quantise(const std::vector<float>& numbers) const {
    std::vector<Vector> vectors(numbers.size() / size_t(shape_.head_dim));
    for (size_t i = 0; i < vectors.size(); ++i) {
      const float* from = &numbers[i * shape_.head_dim];
      Vector& to = vectors[i];
      float largest = 0;
      for (int d = 0; d < shape_.head_dim; ++d) largest = std::max(largest, std::abs(from[d]));
      to.scale = largest / 127;
      for (int d = 0; d < shape_.head_dim; ++d) {
        if (shape_.dtype == KvDType::kInt8) {
          const int8_t code = int8_t(std::lrint(from[d] / to.scale));
          to.bytes.push_back(uint8_t(code));
          to.values.push_back(__bfloat162float(__float2bfloat16_rn(float(code) * to.scale)));
        } else {
          const __nv_bfloat16 value = __float2bfloat16_rn(from[d]);
          const uint16_t bits = __bfloat16_as_ushort(value);
          to.bytes.push_back(uint8_t(bits));
          to.bytes.push_back(uint8_t(bits >> 8));
          to.values.push_back(__bfloat162float(value));
        }
      }
    }
    return vectors;
  }
  const Vector& At(int seq, int token, int is_v, int head) const {
    return kv_[size_t(seq)][(size_t(token) * 2 + size_t(is_v)) * size_t(shape_.kv_heads) + size_t(head)];
  }
  int FirstKey(int position) const { return shape_.window == 0 ? 0 : std::max(0, position - shape_.window + 1); }

  std::vector<unsigned char> Pool(const std::vector<Chunk>& chunks, std::vector<int32_t>* table) const {
    std::vector<unsigned char> pool(ids_.size() * layout_.block_bytes());
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = i % 2 == 0 ? 0xff : 0x7f;  // NaN in bf16 and float
    for (const Chunk& c : chunks) {
      const int first = FirstKey(c.first), end = c.first + c.count;
      for (int block = 0; block < max_blocks_; ++block) {
        const bool seen = (block + 1) * shape_.block_size > first && block * shape_.block_size < end;
        table->push_back(seen ? ids_[size_t(c.seq) * max_blocks_ + size_t(block)] : 0x40000000 + block);
      }
      for (int token = first; token < end; ++token) {
        const int id = ids_[size_t(c.seq) * max_blocks_ + size_t(token / shape_.block_size)];
        const int slot = token % shape_.block_size;
        for (int is_v = 0; is_v < 2; ++is_v) {
          for (int head = 0; head < shape_.kv_heads; ++head) {
            const Vector& from = At(c.seq, token, is_v, head);
            const int pool_head = shape_.first_kv_head + head;
            std::copy(from.bytes.begin(), from.bytes.end(), &pool[layout_.offset(id, is_v, pool_head, slot)]);
            if (shape_.dtype == KvDType::kInt8) {
              const size_t scales = layout_.offset(id, is_v, pool_head, 0) + layout_.scales_offset();
              std::memcpy(&pool[scales + size_t(slot) * sizeof(float)], &from.scale, sizeof(float));
            }
          }
        }
      }
    }
    return pool;
  }

  void DefineRow(int seq, int token, int head, std::vector<double>* out) const {
    const __nv_bfloat16* q = &q_[size_t(seq)][size_t(token) * shape_.width() + size_t(head * shape_.head_dim)];
    const int first = FirstKey(token), kv_head = head / shape_.group;
    std::vector<double> scores;
    double maximum = shape_.sinks ? double(sinks_[size_t(head)]) : -HUGE_VAL;
    for (int t = first; t <= token; ++t) {
      double score = 0;
      const std::vector<float>& k = At(seq, t, 0, kv_head).values;
      for (int d = 0; d < shape_.head_dim; ++d) score += ToDouble(q[d]) * k[size_t(d)];
      score *= scale_;
      if (shape_.soft_cap > 0) score = shape_.soft_cap * std::tanh(score / shape_.soft_cap);
      scores.push_back(score);
      maximum = std::max(maximum, score);
    }
    double weight = shape_.sinks ? std::exp(double(sinks_[size_t(head)]) - maximum) : 0;
    for (double& score : scores) weight += score = std::exp(score - maximum);
    std::vector<double> sums(size_t(shape_.head_dim));
    for (int t = first; t <= token; ++t) {
      const std::vector<float>& v = At(seq, t, 1, kv_head).values;
      for (int d = 0; d < shape_.head_dim; ++d) sums[size_t(d)] += scores[size_t(t - first)] / weight * v[size_t(d)];
    }
    out->insert(out->end(), sums.begin(), sums.end());
  }

  Shape shape_;
  std::vector<int> contexts_;
  Numbers numbers_;
  float scale_;
  KvLayout layout_;
  int max_blocks_ = 0;
  std::vector<int32_t> ids_;
  std::vector<float> sinks_;
  std::vector<Rows> q_;                  // [seq] of [token][heads][head_dim]
  std::vector<std::vector<Vector>> kv_;  // [seq] of [token][K|V][kv_head]
};

std::vector<Chunk> LastRows(const Problem& problem, const std::vector<int>& counts) {
  std::vector<Chunk> chunks;
  for (int seq = 0; seq < int(counts.size()); ++seq) {
    chunks.push_back({seq, problem.context(seq) - counts[size_t(seq)], counts[size_t(seq)]});
  }
  return chunks;
}

// Weights and the result are rounded to bf16 (2^-9 each); values are of size one.
constexpr double kTolerance = 0.01;

struct Case {
  Shape shape;
  std::vector<int> contexts, rows;
};

class AttentionShapes : public testing::TestWithParam<Case> {};

TEST_P(AttentionShapes, AgreesWithTheDefinitionWhicheverKernelDoesIt) {
  SLUICE_NEEDS_DEVICE();
  const Problem problem(GetParam().shape, GetParam().contexts);
  const std::vector<Chunk> chunks = LastRows(problem, GetParam().rows);
  const Rows got = problem.Run(chunks);
  EXPECT_LE(WorstError(got, problem.Definition(chunks), 1.0), kTolerance);
  EXPECT_TRUE(SameBits(got, problem.Run(chunks, /*max_partials=*/0))) << "prefill alone";
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShapes,
                         testing::Values(Case{{1, 1, 64}, {1, 2, 40}, {1, 2, 40}},                  //
                                         Case{{3, 3, 64}, {1, 16, 17, 300, 70}, {1, 1, 3, 2, 30}},  //
                                         Case{{2, 4, 128}, {300, 90}, {4, 35}},                     //
                                         Case{{1, 8, 80, 32}, {70, 33}, {1, 12}},                   //
                                         Case{{1, 7, 96, 48}, {65, 257, 30}, {2, 1, 30}},           //
                                         Case{{1, 16, 64}, {64, 520}, {6, 1}},                      //
                                         Case{{1, 2, 256}, {260, 40}, {2, 40}},                     //
                                         Case{{1, 20, 64}, {80, 300}, {6, 1}},                      //
                                         Case{{2, 2, 10, 5}, {43, 280}, {43, 2}},                   //
                                         Case{{1, 4, 16, 3}, {20, 66}, {20, 1}},                    //
                                         Case{{2, 1, 33, 16}, {50}, {2}},                           //
                                         Case{{1, 3, 100, 16}, {50, 27}, {2, 27}},                  //
                                         Case{{1, 2, 130, 16}, {50}, {40}},                         //
                                         Case{{2, 2, 64, 16, KvDType::kBF16, 0, 0, false, 5, 2}, {90}, {40}}));

INSTANTIATE_TEST_SUITE_P(Variants, AttentionShapes,
                         testing::Values(Case{{2, 3, 64, 16, KvDType::kBF16, 1}, {300, 40}, {3, 40}},
                                         Case{{2, 3, 64, 16, KvDType::kBF16, 70}, {300, 700, 200}, {5, 2, 70}},
                                         Case{{1, 4, 64, 16, KvDType::kBF16, 256}, {530, 600}, {1, 60}},
                                         Case{{1, 4, 128, 16, KvDType::kBF16, 0, 5.0f}, {70, 60}, {3, 33}},
                                         Case{{2, 4, 64, 16, KvDType::kBF16, 0, 0, true}, {270, 60}, {3, 33}},
                                         Case{{2, 2, 80, 16, KvDType::kBF16, 100, 20.0f, true}, {370, 300}, {3, 70}},
                                         Case{{2, 3, 64, 16, KvDType::kInt8}, {300, 70}, {3, 40}},
                                         Case{{1, 4, 128, 16, KvDType::kInt8, 50, 8.0f, true}, {150, 70}, {3, 40}},
                                         Case{{2, 2, 24, 3, KvDType::kInt8}, {70, 40}, {2, 40}},
                                         Case{{1, 1, 256, 16, KvDType::kInt8}, {70, 40}, {2, 40}}));

std::string NameOf(const testing::TestParamInfo<Shape>& info) {
  const Shape& s = info.param;
  return absl::StrCat("dim", s.head_dim, "_group", s.group, s.dtype == KvDType::kInt8 ? "_int8" : "",
                      s.window > 0 ? absl::StrCat("_window", s.window) : "", s.soft_cap > 0 ? "_cap" : "",
                      s.sinks ? "_sinks" : "");
}

class AttentionInvariance : public testing::TestWithParam<Shape> {
 protected:
  // The rows of a chunk as they come out of it alone, in one prefill.
  static Rows Alone(const Problem& problem, const Chunk& chunk) { return problem.Run({chunk}, 0); }
};

// Whatever the chunks, the kernel and the neighbours: each row has the bits that it has in one long prefill.
TEST_P(AttentionInvariance, ChunksNeighboursAndKernelsDoNotShow) {
  SLUICE_NEEDS_DEVICE();
  const Problem problem(GetParam(), {325, 70});
  constexpr int kFirst = 245;  // of 80 rows, across the border of two spans
  const size_t width = size_t(GetParam().width());
  const Rows want = Alone(problem, {0, kFirst, 80});
  const auto expect = [&](const Rows& got, size_t from, const Chunk& chunk, const char* how) {
    const auto rows = got.begin() + ptrdiff_t(from * width);
    const auto whole = want.begin() + ptrdiff_t(size_t(chunk.first - kFirst) * width);
    EXPECT_TRUE(SameBits(Rows(rows, rows + ptrdiff_t(size_t(chunk.count) * width)),
                         Rows(whole, whole + ptrdiff_t(size_t(chunk.count) * width))))
        << how << ", rows " << chunk.first << " + " << chunk.count;
  };
  for (const Chunk& chunk :
       {Chunk{0, 324, 1}, Chunk{0, 255, 1}, Chunk{0, 256, 1}, Chunk{0, 254, 4}, Chunk{0, 310, 15}, Chunk{0, 250, 41}}) {
    expect(problem.Run({chunk}), 0, chunk, "alone");
    expect(problem.Run({chunk}, 0), 0, chunk, "alone, prefilled");
    const Chunk before{1, 67, 2};
    expect(problem.Run({before, chunk}), 2, chunk, "behind another sequence");
    expect(problem.Run({chunk, {1, 10, 60}}), 0, chunk, "before a prefill");
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionInvariance,
                         testing::Values(Shape{1, 3, 64}, Shape{1, 4, 64, 16, KvDType::kBF16, 100},
                                         Shape{1, 2, 128, 16, KvDType::kBF16, 30, 6.0f, true},
                                         Shape{1, 2, 80, 16, KvDType::kInt8, 0, 0, true},
                                         Shape{1, 4, 64, 16, KvDType::kInt8, 257}),
                         NameOf);

// The layout of the pool decides how keys are loaded, not what comes of them.
TEST(Attention, BlockSizesDoNotShow) {
  SLUICE_NEEDS_DEVICE();
  for (const int dim : {64, 128}) {
    for (const KvDType dtype : {KvDType::kBF16, KvDType::kInt8}) {
      Shape shape{1, 2, dim, 16, dtype, 45};
      const std::vector<Chunk> chunks = {{0, 67, 3}, {1, 30, 33}};
      const Rows want = Problem(shape, {70, 63}).Run(chunks);
      for (const int block_size : {5, 32, 48}) {
        shape.block_size = block_size;
        EXPECT_TRUE(SameBits(Problem(shape, {70, 63}).Run(chunks), want)) << Name(dtype) << ", " << block_size;
      }
    }
  }
}

TEST(Attention, FewBlocksDoAllTheWork) {
  SLUICE_NEEDS_DEVICE();
  const Problem problem({2, 4, 64}, {600, 20, 270, 150});
  const std::vector<Chunk> chunks = {{0, 597, 3}, {1, 19, 1}, {2, 180, 90}, {3, 110, 40}};
  EXPECT_TRUE(SameBits(problem.Run(chunks), problem.Run(chunks, -1, /*grid=*/1)));
}

TEST(Attention, WhatHasNoRoomForPartsIsPrefilled) {
  SLUICE_NEEDS_DEVICE();
  const Problem problem({2, 4, 64}, {600, 270, 20});
  const std::vector<Chunk> chunks = {{0, 597, 3}, {1, 269, 1}, {2, 19, 1}};
  const Rows want = problem.Run(chunks);
  for (const int room : {1, 3, 10}) EXPECT_TRUE(SameBits(problem.Run(chunks, room), want)) << room;
}

TEST(Attention, RefusesWhatItCannotDo) {
  SLUICE_NEEDS_DEVICE();
  AttentionArgs good;
  good.layout.num_kv_heads = 2;
  good.layout.head_dim = good.shape.head_dim = 64;
  good.layout.dtype = KvDType::kBF16;
  good.kv_heads = 2;
  EXPECT_EQ(Attention(good, nullptr), cudaSuccess) << "nothing to launch";
  const auto bad = [&](auto change) {
    AttentionArgs args = good;
    change(args);
    EXPECT_EQ(Attention(args, nullptr), cudaErrorInvalidValue);
  };
  bad([](auto& a) { a.layout.head_dim = a.shape.head_dim = 257; });
  bad([](auto& a) { a.shape.head_dim = 128; });
  bad([](auto& a) { a.layout.dtype = KvDType::kF32; });
  bad([](auto& a) { a.layout.block_size = 0; });
  bad([](auto& a) { a.first_kv_head = 1; });
  bad([](auto& a) { a.shape.group = 0; });
  bad([](auto& a) { a.shape.window = -1; });
  bad([](auto& a) { a.scale = 0; });
  bad([](auto& a) { a.soft_cap = -1; });
  bad([](auto& a) { a.capacity.spans = 1; });
}

}  // namespace
}  // namespace sluice::kernels::cuda
