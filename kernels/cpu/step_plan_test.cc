#include "kernels/cpu/step_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

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
      plan.PlanAttention(num_heads, parts);
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

}  // namespace
}  // namespace sluice::kernels::cpu
