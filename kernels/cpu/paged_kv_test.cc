// Attention over K and V in 16 and 8 bits: against the definition, among the instruction sets, and however the rows are
// cut.
#include "kernels/cpu/paged_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/conformance/reference.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/isa.h"
#include "kernels/dequant.h"
#include "kernels/kv_layout.h"

namespace sluice::kernels::cpu {
namespace {

constexpr uint32_t kSeed = 99;

// One sequence in a pool of shuffled blocks, one KV head.
struct Sequence {
  int heads, length;
  KvLayout layout;
  std::vector<std::vector<double>> keys, values;  // [length][dim], as rounded
  std::vector<uint8_t> pool;
  std::vector<int32_t> table;
  std::vector<float> q;  // [length][heads * dim]

  int dim() const { return layout.head_dim; }
  KvStrides strides() const {
    return {int64_t(layout.block_bytes()), int64_t(layout.plane_bytes()), int64_t(layout.scales_offset())};
  }
  std::byte* block(int position) {
    return reinterpret_cast<std::byte*>(pool.data()) +
           layout.offset(table[size_t(position / layout.block_size)], 0, 0, 0);
  }
};

std::vector<double> Rounded(const std::vector<float>& x, KvDType type) {
  std::vector<double> r;
  float largest = 0;
  for (const float f : x) largest = std::max(largest, std::abs(f));
  for (const float f : x) {
    if (type == KvDType::kBF16) {
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      bits += 0x7fff + ((bits >> 16) & 1);
      bits &= 0xffff0000u;
      float g;
      std::memcpy(&g, &bits, 4);
      r.push_back(g);
    } else {
      const float q = std::nearbyint(f * (127.0f / largest));
      r.push_back(double(q) * (largest / 127.0f));
    }
  }
  return r;
}

Sequence MakeSequence(const KvTable& kernels, KvDType type, int dim, int heads, int block, int length) {
  Sequence s{.heads = heads,
             .length = length,
             .layout = {1, 1, dim, block, type},
             .keys = {},
             .values = {},
             .pool = {},
             .table = {},
             .q = {}};
  std::mt19937 rng(kSeed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const int blocks = BlocksFor(length, block);
  s.pool.assign(size_t(blocks) * s.layout.block_bytes() + 64, 0xff);  // NaN where nothing was written
  for (int i = 0; i < blocks; ++i) s.table.push_back((i * 7 + 3) % blocks);
  if (blocks % 7 == 0) {
    for (int i = 0; i < blocks; ++i) s.table[size_t(i)] = blocks - 1 - i;
  }
  for (int t = 0; t < length; ++t) {
    std::vector<float> k(static_cast<size_t>(dim)), v(static_cast<size_t>(dim));
    for (float& x : k) x = normal(rng);
    for (float& x : v) x = normal(rng);
    kernels.write(k.data(), v.data(), dim, t % block, block, s.strides(), s.block(t));
    s.keys.push_back(Rounded(k, type));
    s.values.push_back(Rounded(v, type));
    for (int i = 0; i < heads * dim; ++i) s.q.push_back(2 * normal(rng));
  }
  return s;
}

PagedAttentionArgs Args(const Sequence& s, int first, int tokens, float* out, float* scratch) {
  const int64_t ld = int64_t(s.heads) * s.dim();
  return {.q = s.q.data() + first * ld,
          .ldq = ld,
          .out = out,
          .ldo = ld,
          .tokens = tokens,
          .heads = s.heads,
          .first_position = first,
          .head_dim = s.dim(),
          .scale = 0.2f,
          .kv = reinterpret_cast<const std::byte*>(s.pool.data()),
          .strides = s.strides(),
          .block_size = s.layout.block_size,
          .blocks = s.table.data(),
          .first_key = 0,
          .end_key = first + tokens,
          .states = nullptr,
          .next = {},
          .scratch = scratch};
}

// Rows of the tokens [first, first + tokens).
std::vector<float> Attend(const KvTable& kernels, const Sequence& s, int first, int tokens) {
  std::vector<float> out(size_t(tokens) * size_t(s.heads * s.dim()));
  HostMemory scratch = *HostMemory::Map(size_t(PagedAttentionScratchFloats(s.dim())) * sizeof(float));
  kernels.attention(Args(s, first, tokens, out.data(), scratch.floats()));
  return out;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class PagedKvTest : public testing::TestWithParam<std::tuple<CpuIsa, KvDType>> {
 protected:
  void SetUp() override {
    const CpuIsa isa = std::get<0>(GetParam());
    if (!ResolveCpuIsa(isa).ok()) GTEST_SKIP() << "this CPU lacks " << Name(isa);
  }
  KvDType type() const { return std::get<1>(GetParam()); }
  const KvTable& kernels() const { return KvFor(std::get<0>(GetParam()), type()); }
  const KvTable& scalar() const { return KvFor(CpuIsa::kScalar, type()); }
};

TEST_P(PagedKvTest, IsNearTheDefinitionAndHasTheScalarBits) {
  for (const auto& [dim, heads, block] :
       std::vector<std::tuple<int, int, int>>{{64, 3, 16}, {24, 2, 32}, {128, 1, 16}, {20, 3, 5}}) {
    const Sequence s = MakeSequence(kernels(), type(), dim, heads, block, 600);
    for (const int end : {1, 17, 64, 65, 255, 256, 257, 300, 512, 513, 600}) {
      const int tokens = std::min(end, end % 2 == 0 ? 1 : 7);
      const std::vector<float> out = Attend(kernels(), s, end - tokens, tokens);
      EXPECT_TRUE(SameBits(out, Attend(scalar(), s, end - tokens, tokens))) << end << ", dim " << dim;
      for (int t = 0; t < tokens; ++t) {
        const size_t seen = size_t(end - tokens + t + 1);
        for (int h = 0; h < heads; ++h) {
          const float* q = s.q.data() + (end - tokens + t) * heads * dim + h * dim;
          const auto expected =
              conformance::ReferenceAttention({q, q + dim}, {s.keys.begin(), s.keys.begin() + int64_t(seen)},
                                              {s.values.begin(), s.values.begin() + int64_t(seen)}, 0.2f);
          for (int d = 0; d < dim; ++d) {
            // A chain of dim roundings of scores up to about 15 goes into the exponent; values are about 4 at most.
            ASSERT_NEAR(out[size_t((t * heads + h) * dim + d)], expected[size_t(d)], 2e-4)
                << "end " << end << ", token " << t << ", head " << h << ", element " << d;
          }
        }
      }
    }
  }
}

TEST_P(PagedKvTest, RowsDoNotDependOnTheCut) {
  const Sequence s = MakeSequence(kernels(), type(), 64, 3, 16, 700);
  std::mt19937 rng(kSeed);
  const std::vector<float> alone = [&] {
    std::vector<float> all;
    for (int t = 0; t < s.length; ++t) {
      const std::vector<float> row = Attend(kernels(), s, t, 1);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }();
  for (int first = 0; first < s.length;) {
    const int tokens = std::min(1 + int(rng() % (kAttentionRows / 3)), s.length - first);
    const std::vector<float> out = Attend(kernels(), s, first, tokens);
    const float* expected = alone.data() + size_t(first) * 192;
    ASSERT_EQ(std::memcmp(out.data(), expected, out.size() * sizeof(float)), 0) << first << " + " << tokens;
    first += tokens;
  }
}

// The same rows from parts of their keys, cut at these spans.
std::vector<float> AttendInParts(const KvTable& kernels, const Sequence& s, int first, int tokens,
                                 const std::vector<int>& cuts) {
  const int64_t ld = int64_t(s.heads) * s.dim(), rows = int64_t(tokens) * s.heads;
  std::vector<float> out(size_t(tokens * ld)), unused(out.size());
  std::vector<float> states(size_t(20 * AttentionStateFloats(rows, s.dim())), NAN);
  HostMemory scratch = *HostMemory::Map(size_t(PagedAttentionScratchFloats(s.dim())) * sizeof(float));
  int state = 0;
  for (size_t part = 0; part <= cuts.size(); ++part) {
    const int begin = part == 0 ? 0 : cuts[part - 1] * kSpanKeys;
    const int end = part == cuts.size() ? first + tokens : cuts[part] * kSpanKeys;
    PagedAttentionArgs args = Args(s, first, tokens, unused.data(), scratch.floats());
    args.first_key = begin;
    args.end_key = end;
    args.states = states.data() + state * AttentionStateFloats(rows, s.dim());
    kernels.attention(args);
    state += begin == 0 ? 1 : (end - begin + kSpanKeys - 1) / kSpanKeys;
  }
  for (int t = 0; t < tokens; ++t) {
    const int position = first + t, cut = cuts[0] * kSpanKeys;
    for (int h = 0; h < s.heads; ++h) {
      kernels.merge({.states = states.data(),
                     .count = position < cut ? 1 : 2 + (position - cut) / kSpanKeys,
                     .rows = int(rows),
                     .row = t * s.heads + h,
                     .head_dim = s.dim(),
                     .out = out.data() + t * ld + h * s.dim()});
    }
  }
  return out;
}

TEST_P(PagedKvTest, PartsOfTheKeysMergeToTheSameBits) {
  for (const auto& [dim, heads, block] :
       std::vector<std::tuple<int, int, int>>{{64, 3, 16}, {24, 2, 32}, {80, 1, 16}, {20, 3, 5}}) {
    const Sequence s = MakeSequence(kernels(), type(), dim, heads, block, 1300);
    for (const auto& [first, tokens] :
         {std::pair(1299, 1), std::pair(1280, 1), std::pair(1279, 2), std::pair(1290, 7)}) {
      const std::vector<float> whole = Attend(kernels(), s, first, tokens);
      for (const std::vector<int>& cuts : {std::vector{1}, {5}, {4}, {2, 4}, {1, 2, 3, 4, 5}}) {
        if (first + tokens <= cuts.back() * kSpanKeys) continue;
        EXPECT_TRUE(SameBits(whole, AttendInParts(kernels(), s, first, tokens, cuts)))
            << "dim " << dim << ", tokens " << tokens << " from " << first << ", first cut " << cuts[0];
      }
    }
  }
}

// What is stored does not depend on the instruction set either: a row of zeros, of one outlier, of what is no number.
TEST_P(PagedKvTest, WritesTheScalarBytes) {
  for (const auto& [dim, block] : {std::pair(64, 16), std::pair(20, 5), std::pair(80, 32)}) {
    const KvLayout layout{1, 1, dim, block, type()};
    const KvStrides strides{int64_t(layout.block_bytes()), int64_t(layout.plane_bytes()),
                            int64_t(layout.scales_offset())};
    std::vector<std::byte> mine(layout.block_bytes()), expected(mine);
    std::mt19937 rng(kSeed);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (int slot = 0; slot < block; ++slot) {
      std::vector<float> k(static_cast<size_t>(dim)), v(static_cast<size_t>(dim));
      for (float& x : k) x = slot == 1 ? 0.0f : normal(rng);
      for (float& x : v) x = normal(rng) * 1e-20f;
      if (slot == 2) k[size_t(dim - 1)] = 1000;
      if (slot == 3) k[3] = NAN, v[2] = INFINITY;
      kernels().write(k.data(), v.data(), dim, slot, block, strides, mine.data());
      scalar().write(k.data(), v.data(), dim, slot, block, strides, expected.data());
    }
    EXPECT_EQ(mine, expected) << "dim " << dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, PagedKvTest,
                         testing::Combine(testing::Values(CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512),
                                          testing::Values(KvDType::kBF16, KvDType::kInt8)),
                         [](const auto& i) {
                           return std::string(Name(std::get<0>(i.param))) + "_" +
                                  std::string(kernels::Name(std::get<1>(i.param)));
                         });

}  // namespace
}  // namespace sluice::kernels::cpu
