#include "engine/runner/step_inputs.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

TEST(StepInputs, APlanBecomesArrays) {
  Sequence a, b, c;
  a.tokens = {10, 11, 12, 13, 14};
  a.blocks = {7, 8, 9};
  b.tokens = {20, 21, 22, 23, 24, 25};
  b.blocks = {3, 1, 4, 0};
  c.tokens = {30};
  c.blocks = {5};
  StepInputs inputs(2);
  const kernels::StepBatch batch = inputs.Fill({{&a, 4, 1, true}, {&c, 0, 1, true}, {&b, 1, 2, false}});
  EXPECT_THAT(batch.tokens, ElementsAre(14, 30, 21, 22));
  EXPECT_THAT(batch.row_begin, ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(batch.context_len, ElementsAre(5, 1, 3));
  EXPECT_EQ(batch.max_blocks, 3);
  EXPECT_THAT(batch.block_table, ElementsAre(7, 8, 9, 5, 0, 0, 3, 1, 0));
  EXPECT_THAT(batch.logit_rows, ElementsAre(0, 1));

  // The buffers are used again: nothing of the first step shows in the second.
  const kernels::StepBatch next = inputs.Fill({{&b, 3, 3, true}});
  EXPECT_THAT(next.tokens, ElementsAre(23, 24, 25));
  EXPECT_THAT(next.row_begin, ElementsAre(0, 3));
  EXPECT_THAT(next.context_len, ElementsAre(6));
  EXPECT_THAT(next.block_table, ElementsAre(3, 1, 4));
  EXPECT_THAT(next.logit_rows, ElementsAre(2));
}

}  // namespace
}  // namespace sluice::engine
