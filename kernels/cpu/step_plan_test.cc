#include "kernels/cpu/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/kernel_table.h"

namespace sluice::kernels::cpu {
namespace {

TEST(StepPlan, PlacesRowsAndCoversEveryRowAndHeadOnce) {
  const KvLayout layout{.num_layers = 1, .num_kv_heads = 3, .head_dim = 64, .block_size = 16};
  const std::vector<int32_t> tokens(41, 1), row_begin = {0, 1, 41}, context = {100, 57};
  std::vector<int32_t> table;
  for (int i = 0; i < 14; ++i) table.push_back(50 - i);
  StepPlan plan;
  plan.Begin({tokens, row_begin, context, table, 7, {}}, layout);
  EXPECT_EQ(plan.position(0), 99);
  EXPECT_EQ(plan.block(0), 44);
  EXPECT_EQ(plan.slot(0), 3);
  EXPECT_EQ(plan.position(1), 17);
  EXPECT_EQ(plan.block(1), 42);  // the second sequence's second block
  EXPECT_EQ(plan.slot(1), 1);
  EXPECT_EQ(plan.position(40), 56);

  for (const int num_heads : {3, 9, 3 * 50}) {
    for (const int parts : {1, 2, 5}) {
      plan.PlanAttention(num_heads, parts, 0);
      std::map<std::pair<int, int>, int> seen;  // (row, head)
      for (int part = 0; part < parts; ++part) {
        for (const AttentionItem& item : plan.share(part)) {
          EXPECT_LE(item.tokens * item.heads, kAttentionRows);
          EXPECT_EQ(item.seq, item.first_row == 0 ? 0 : 1);
          for (int t = 0; t < item.tokens; ++t) {
            for (int h = 0; h < item.heads; ++h) {
              EXPECT_EQ((item.first_head + h) / (num_heads / 3), item.kv_head);
              ++seen[{item.first_row + t, item.first_head + h}];
            }
          }
        }
      }
      EXPECT_EQ(int(seen.size()), 41 * num_heads);
      for (const auto& [place, count] : seen) EXPECT_EQ(count, 1);
    }
  }
}

// A batch of decode rows at these contexts, and its plan.
struct Decode {
  Decode(std::vector<int32_t> contexts, int kv_heads) : context(std::move(contexts)) {
    layout = {.num_layers = 1, .num_kv_heads = kv_heads, .head_dim = 64, .block_size = 16};
    tokens.assign(context.size(), 1);
    for (size_t i = 0; i <= context.size(); ++i) row_begin.push_back(int32_t(i));
    max_blocks = BlocksFor(*std::max_element(context.begin(), context.end()), 16);
    table.assign(context.size() * size_t(max_blocks), 0);
    plan.Begin({tokens, row_begin, context, table, max_blocks, {}}, layout);
  }
  std::vector<int32_t> context, tokens, row_begin, table;
  int max_blocks;
  KvLayout layout;
  StepPlan plan;
};

// Every key of every (row, head) in one item, in order; states of one split item side by side and of no other.
void ExpectWholeCover(const Decode& d, int parts, int64_t state_rows) {
  std::map<std::pair<int, int>, int64_t> seen;  // (row, first head): keys
  std::map<int64_t, int> states;                // row of states: how often written
  for (int part = 0; part < parts; ++part) {
    for (const AttentionItem& item : d.plan.share(part)) {
      int64_t& end = seen[{item.first_row, item.first_head}];
      EXPECT_EQ(item.first_key, end);
      EXPECT_GT(item.end_key, item.first_key);
      end = item.end_key;
      if (item.states < 0) {
        EXPECT_EQ(item.first_key, 0);
        EXPECT_EQ(item.end_key, d.context[size_t(item.first_row)]);
        continue;
      }
      EXPECT_EQ(item.first_key % kSpanKeys, 0);
      const int64_t left = item.first_key == 0 ? 1 : (item.end_key - item.first_key + kSpanKeys - 1) / kSpanKeys;
      for (int64_t i = 0; i < left * item.rows(); ++i) ++states[item.states + i];
    }
  }
  EXPECT_EQ(seen.size(), d.context.size() * size_t(d.layout.num_kv_heads));
  for (const auto& [place, end] : seen) EXPECT_EQ(end, d.context[size_t(place.first)]);
  int64_t promised = 0;
  for (const SplitItem& split : d.plan.splits()) {
    promised += split.states(split.whole.end_key - 1) * split.whole.rows();
  }
  EXPECT_EQ(int64_t(states.size()), promised);
  for (const auto& [row, count] : states) {
    EXPECT_EQ(count, 1) << row;
    EXPECT_LT(row, state_rows);
  }
  EXPECT_LT(int(d.plan.splits().size()), parts);
}

double Worst(const StepPlan& plan, int parts) {  // largest share of keys, as a multiple of an equal one
  int64_t all = 0, most = 0;
  for (int part = 0; part < parts; ++part) {
    int64_t keys = 0;
    for (const AttentionItem& item : plan.share(part)) keys += item.end_key - item.first_key;
    all += keys;
    most = std::max(most, keys);
  }
  return double(most) * parts / double(all);
}

TEST(StepPlan, CutsLongContextsWhereSharesWouldBeUnequal) {
  for (const int context : {512, 1000, 2048, 5000}) {
    for (const int parts : {1, 2, 3, 4, 7}) {
      SCOPED_TRACE(std::to_string(context) + " keys, " + std::to_string(parts) + " parts");
      Decode d({context}, 3);
      d.plan.PlanAttention(9, parts, 1 << 20);
      ExpectWholeCover(d, parts, 1 << 20);
      // Each border is within half a span of where it should be.
      EXPECT_LE(Worst(d.plan, parts), 1 + double(kSpanKeys) * parts / (3 * context));
      EXPECT_TRUE(parts != 3 || d.plan.splits().empty());
    }
  }
  Decode two({3000, 20}, 1);
  two.plan.PlanAttention(3, 2, 1 << 20);
  ExpectWholeCover(two, 2, 1 << 20);
  EXPECT_EQ(two.plan.splits().size(), 1u);
}

TEST(StepPlan, CutsNothingWithoutRoomOrNeed) {
  Decode one({2048}, 3);
  one.plan.PlanAttention(9, 2, 3 * 5 - 1);  // 1 state before the cut in the middle and 4 behind, of 3 rows
  EXPECT_TRUE(one.plan.splits().empty());
  ExpectWholeCover(one, 2, 0);
  Decode again({2048}, 3);
  again.plan.PlanAttention(9, 2, 3 * 5);
  EXPECT_EQ(again.plan.splits().size(), 1u);
  ExpectWholeCover(again, 2, 3 * 5);
  Decode many(std::vector<int32_t>(32, 700), 3);
  many.plan.PlanAttention(9, 2, 1 << 20);
  EXPECT_TRUE(many.plan.splits().empty());
  Decode brief({250}, 3);
  brief.plan.PlanAttention(9, 2, 1 << 20);
  EXPECT_TRUE(brief.plan.splits().empty());
}

TEST(StepPlan, CoversEveryKeyOfRandomBatchesOnce) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    std::vector<int32_t> contexts;
    for (int n = 1 + int(rng() % 6); n > 0; --n) contexts.push_back(1 + int32_t(rng() % (rng() % 2 ? 4000 : 300)));
    Decode d(std::move(contexts), 1 + int(rng() % 4));
    const int parts = 1 + int(rng() % 9), heads = d.layout.num_kv_heads * (1 + int(rng() % 4));
    const int64_t room = rng() % 2 ? 1 << 20 : rng() % 100;
    d.plan.PlanAttention(heads, parts, room);
    ExpectWholeCover(d, parts, room);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
