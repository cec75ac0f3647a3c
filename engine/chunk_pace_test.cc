#include "engine/chunk_pace.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

TEST(ChunkPace, FirstItAllowsWhatItWasTold) {
  EXPECT_EQ(ChunkPace(0.04, 64).Tokens(8), 64);
}

TEST(ChunkPace, FillsTheTarget) {
  ChunkPace pace(0.040, 64);
  for (int i = 0; i < 50; ++i) {
    pace.Report(8, 0, 0.010);
    pace.Report(8, 32, 0.010 + 32 * 0.0005);
  }
  EXPECT_NEAR(pace.Tokens(8), 60, 1);
  EXPECT_NEAR(pace.Tokens(32), 40, 1) << "four times the rows: about twice the time";
}

TEST(ChunkPace, FollowsWhatChanges) {
  ChunkPace pace(0.040, 64);
  for (int i = 0; i < 50; ++i) pace.Report(1, 64, 0.064);
  EXPECT_NEAR(pace.Tokens(1), 40, 1);
  for (int i = 0; i < 50; ++i) pace.Report(1, 64, 0.032);
  EXPECT_NEAR(pace.Tokens(1), 80, 2);
}

TEST(ChunkPace, InterruptionsDoNotShrinkChunks) {
  ChunkPace pace(0.040, 64);
  for (int i = 0; i < 200; ++i) {
    const double pause = i % 4 == 3 ? 0.1 : 0;
    pace.Report(1, 0, 0.010 + pause);
    pace.Report(1, 64, 0.042 + pause);
  }
  EXPECT_GE(pace.Tokens(1), 40);
  EXPECT_LE(pace.Tokens(1), 64);
}

TEST(ChunkPace, PromptsAlwaysGetOn) {
  ChunkPace pace(0.001, 64);
  for (int i = 0; i < 10; ++i) {
    pace.Report(64, 0, 0.5);
    pace.Report(64, 32, 0.7);
  }
  EXPECT_EQ(pace.Tokens(64), ChunkPace::kLeast);
}

TEST(ChunkPace, AStepThatIsTooFastToMeasureAllowsAll) {
  ChunkPace pace(0.040, 64);
  pace.Report(1, 64, 1e-9);
  EXPECT_GE(pace.Tokens(1), 100000);
}

}  // namespace
}  // namespace sluice::engine
