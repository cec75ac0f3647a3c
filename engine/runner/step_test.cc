#include "engine/runner/step.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

std::shared_ptr<Sequence> Make(std::vector<int32_t> tokens, std::vector<int32_t> blocks) {
  auto s = std::make_shared<Sequence>();
  s->tokens = std::move(tokens);
  s->num_prompt_tokens = int(s->tokens.size());
  s->blocks = std::move(blocks);
  s->sample = std::make_shared<SampleState>(SamplingParams{}, 0, s->tokens, s->num_prompt_tokens);
  return s;
}

TEST(Step, APlanBecomesArrays) {
  const auto a = Make({10, 11, 12, 13, 14}, {7, 8, 9}), b = Make({20, 21, 22, 23, 24, 25}, {3, 1, 4, 0}),
             c = Make({30}, {5});
  StepPlan plan;
  plan.chunks = {{.sequence = a, .begin = 4, .count = 1, .samples = true},
                 {.sequence = c, .begin = 0, .count = 1, .samples = true},
                 {.sequence = b, .begin = 1, .count = 2}};
  const StepWork step = MakeStep(1, plan, 2);
  const kernels::StepBatch batch = step.inputs.batch();
  EXPECT_THAT(batch.tokens, ElementsAre(14, 30, 21, 22));
  EXPECT_THAT(batch.row_begin, ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(batch.context_len, ElementsAre(5, 1, 3));
  EXPECT_EQ(batch.max_blocks, 3);
  EXPECT_THAT(batch.block_table, ElementsAre(7, 8, 9, 5, 0, 0, 3, 1, 0));
  EXPECT_THAT(batch.logit_rows, ElementsAre(0, 1));
}

TEST(Step, ATokenThatIsNotKnownYetIsFilledInLater) {
  const auto a = Make({10, 11}, {1, 2});
  a->pending = 1;
  StepPlan plan;
  plan.chunks = {{.sequence = a, .begin = 2, .count = 1, .samples = true}};
  const StepWork step = MakeStep(1, plan, 2);
  EXPECT_THAT(step.inputs.tokens, ElementsAre(kUnknownToken));
  EXPECT_EQ(step.tasks[0].unknown_row, 0);
  EXPECT_THAT(step.inputs.context_len, ElementsAre(3));
}

TEST(Step, DraftsAndScoresHaveRowsOfLogits) {
  const auto a = Make({10, 11, 12, 13}, {1, 2, 3}), b = Make({20, 21, 22, 23, 24}, {4, 5, 6});
  b->prompt_logprobs = 2;
  StepPlan plan;
  plan.chunks = {{.sequence = a, .begin = 3, .count = 1, .drafts = {7, 8}, .samples = true},
                 {.sequence = b, .begin = 1, .count = 4, .score_begin = 2, .scores = 2, .samples = true}};
  const StepWork step = MakeStep(1, plan, 2);
  EXPECT_THAT(step.inputs.tokens, ElementsAre(13, 7, 8, 21, 22, 23, 24));
  EXPECT_THAT(step.inputs.context_len, ElementsAre(6, 5));
  EXPECT_THAT(step.inputs.logit_rows, ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_THAT(step.tasks[0].drafts, ElementsAre(7, 8));
  EXPECT_THAT(step.tasks[1].targets, ElementsAre(23, 24));
  EXPECT_EQ(step.tasks[1].target_logprobs, 2);
}

}  // namespace
}  // namespace sluice::engine
