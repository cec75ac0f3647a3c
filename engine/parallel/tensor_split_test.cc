#include "engine/parallel/tensor_split.h"

#include <algorithm>
#include <set>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

ModelConfig Config(int heads, int kv_heads) {
  ModelConfig c;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = 64;
  c.hidden = 576;
  c.ffn = 1536;
  c.vocab = 49152;
  return c;
}

void ExpectCovers(const std::vector<int64_t>& borders, int64_t n, int ranks) {
  ASSERT_EQ(int(borders.size()), ranks + 1);
  EXPECT_EQ(borders.front(), 0);
  EXPECT_EQ(borders.back(), n);
  EXPECT_TRUE(std::is_sorted(borders.begin(), borders.end()));
}

TEST(TensorSplit, EveryHeadHasOneRankThatHasItsKeys) {
  for (int kv = 1; kv <= 9; ++kv) {
    for (int group = 1; group <= 8; ++group) {
      const int heads = kv * group;
      for (int ranks = 1; ranks <= 12; ++ranks) {
        const auto split = TensorSplit::Of(Config(heads, kv), ranks);
        if (!split.ok()) {
          // Only where a rank would be left without a head.
          EXPECT_TRUE(ranks > heads || (ranks > kv && (ranks + kv - 1) / kv > group)) << split.status();
          continue;
        }
        SCOPED_TRACE(testing::Message() << heads << " heads, " << kv << " of KV, " << ranks << " ranks");
        int64_t next = 0, most = 0, least = heads;
        std::set<int64_t> kept;
        for (int rank = 0; rank < ranks; ++rank) {
          const Part q = split->heads(rank), k = split->kv_heads(rank);
          EXPECT_EQ(q.begin, next);
          next = q.end;
          EXPECT_EQ(k.begin, q.begin / group);
          EXPECT_EQ(k.end, (q.end - 1) / group + 1);
          EXPECT_EQ(q.size() % k.size(), 0) << "as many query heads for each KV head";
          for (int64_t h = k.begin; h < k.end; ++h) kept.insert(h);
          most = std::max(most, q.size());
          least = std::min(least, q.size());
        }
        EXPECT_EQ(next, heads);
        EXPECT_EQ(int(kept.size()), kv);
        if (ranks <= kv) {
          EXPECT_LE(most - least, group);
        }
        ExpectCovers(split->attention_borders(), heads * 64, ranks);
        ExpectCovers(split->ffn_borders(), 1536, ranks);
        ExpectCovers(split->hidden_borders(), 576, ranks);
        ExpectCovers(split->vocab_borders(), 49152, ranks);
      }
    }
  }
}

TEST(TensorSplit, TheDefaultModelInTwo) {
  const auto split = TensorSplit::Of(Config(9, 3), 2);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->kv_heads(0), (Part{0, 1}));
  EXPECT_EQ(split->kv_heads(1), (Part{1, 3}));
  EXPECT_EQ(split->heads(0), (Part{0, 3}));
  EXPECT_EQ(split->heads(1), (Part{3, 9}));
  EXPECT_EQ(split->hidden(1), (Part{288, 576}));
}

TEST(TensorSplit, NamesTheLimit) {
  EXPECT_EQ(TensorSplit::Of(Config(9, 3), 0).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status many = TensorSplit::Of(Config(9, 3), 10).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(many.message().find("1 to 9"), std::string::npos) << many;
}

TEST(TensorSplit, BordersAreOnTheGrain) {
  EXPECT_EQ(EvenBorders(10, 3, 1), (std::vector<int64_t>{0, 3, 6, 10}));
  EXPECT_EQ(EvenBorders(141, 2, 64), (std::vector<int64_t>{0, 64, 141}));
  EXPECT_EQ(EvenBorders(141, 4, 64), (std::vector<int64_t>{0, 0, 64, 128, 141}));
}

}  // namespace
}  // namespace sluice::engine
