// The suite of every backend catches backends that break a promise: for each kind of fault, the checks that must report
// it, and nothing to report where nothing is broken.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "kernels/conformance/broken_backend.h"
#include "kernels/conformance/checks.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::kernels::conformance {
namespace {

// "Suite.Check" of all checks of behaviour that report something. The others compare with the naive reference and
// between good variants.
std::set<std::string> CaughtBy(Fault fault, double batch_error = 0) {
  Subject subject{.name = "broken", .numerics_id = "f32.1", .batch_error = batch_error};
  subject.variants = {Break({"broken", [] { return NewCpuBackend({.threads = 1}); }}, fault)};
  std::set<std::string> caught;
  for (const Check& check : AllChecks()) {
    if (std::string(check.suite) == "NearReference") continue;
    testing::TestPartResultArray results;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
      check.run(subject);
    }
    bool failed = false;
    for (int i = 0; i < results.size(); ++i) failed |= results.GetTestPartResult(i).failed();
    if (failed) caught.insert(absl::StrCat(check.suite, ".", check.name));
  }
  return caught;
}

using testing::IsSupersetOf;

TEST(ConformanceCanFail, NothingToReportOfAGoodBackend) {
  EXPECT_THAT(CaughtBy(Fault::kNone), testing::IsEmpty());
}

TEST(ConformanceCanFail, LogitsThatDependOnTheRowsBeside) {
  EXPECT_THAT(CaughtBy(Fault::kLogitsDependOnBatch),
              IsSupersetOf({"BatchInvariance.BatchTimesChunk", "BatchInvariance.DecodeTogether",
                            "BatchInvariance.DecodeRowsBesideChunks", "BatchInvariance.RandomSteps",
                            "VerificationRows.BesideOthers", "SharedBlocks.ManyReadersAtOnce", "HeadRows.OfAnyRows"}));
  EXPECT_THAT(CaughtBy(Fault::kLogitsDependOnOrder),
              IsSupersetOf({"BatchInvariance.BatchTimesChunk", "BatchInvariance.DecodeTogether",
                            "BatchInvariance.DecodeRowsBesideChunks"}));
}

TEST(ConformanceCanFail, LogitsThatDependOnTheChunk) {
  EXPECT_THAT(
      CaughtBy(Fault::kLogitsDependOnChunk),
      IsSupersetOf({"BatchInvariance.BatchTimesChunk", "BatchInvariance.AloneInAnyChunks",
                    "VerificationRows.AnyNumberHolds", "SharedBlocks.BlocksOfAnother", "BlockTables.AnyOrder"}));
}

TEST(ConformanceCanFail, LogitsOfRowsThatNobodyAskedFor) {
  EXPECT_THAT(CaughtBy(Fault::kLogitsOfOtherRows), testing::ElementsAre("HeadRows.OfAnyRows"));
}

TEST(ConformanceCanFail, KvThatDependsOnTheChunk) {
  EXPECT_THAT(CaughtBy(Fault::kKvDependsOnChunk),
              IsSupersetOf({"BatchInvariance.BatchTimesChunk", "BatchInvariance.AloneInAnyChunks"}));
}

TEST(ConformanceCanFail, DraftsThatLeaveATrace) {
  const std::set<std::string> caught = CaughtBy(Fault::kDraftsLeaveATrace);
  EXPECT_THAT(caught, IsSupersetOf({"VerificationRows.AnyNumberHolds", "VerificationRows.BesideOthers",
                                    "VerificationRows.ABlockOfDraftsGoesToAnother"}));
  EXPECT_THAT(caught, testing::Not(testing::Contains("BatchInvariance.BatchTimesChunk"))) << "only what is rolled back";
}

TEST(ConformanceCanFail, BlockTablesThatAreNotFollowed) {
  EXPECT_THAT(CaughtBy(Fault::kBlocksInOrder), IsSupersetOf({"BlockTables.AnyOrder", "SharedBlocks.BlocksOfAnother"}));
  EXPECT_THAT(CaughtBy(Fault::kReadsUnusedEntries),
              testing::ElementsAre("BlockTables.EntriesPastTheContextAreIgnored"));
}

// Where a row may depend on the batch, what is no rounding still shows.
TEST(ConformanceCanFail, MoreThanRoundingWhereBitsDependOnTheBatch) {
  EXPECT_THAT(CaughtBy(Fault::kNone, 1e-3), testing::IsEmpty());
  EXPECT_THAT(CaughtBy(Fault::kKvDependsOnChunk, 1e-3), testing::IsEmpty()) << "the last bit of an element of V";
  EXPECT_THAT(CaughtBy(Fault::kBlocksInOrder, 1e-3),
              IsSupersetOf({"BlockTables.AnyOrder", "SharedBlocks.BlocksOfAnother"}));
  EXPECT_THAT(CaughtBy(Fault::kLogitsOfOtherRows, 1e-3), testing::ElementsAre("HeadRows.OfAnyRows"));
  EXPECT_THAT(CaughtBy(Fault::kCopiesKOnly, 1e-3), testing::ElementsAre("SharedBlocks.ACopyServesAsWell"));
  EXPECT_THAT(CaughtBy(Fault::kDraftsLeaveATrace, 1e-3), testing::Contains("VerificationRows.AnyNumberHolds"));
}

TEST(ConformanceCanFail, CopiesThatAreNotWhole) {
  EXPECT_THAT(CaughtBy(Fault::kCopiesKOnly), testing::ElementsAre("SharedBlocks.ACopyServesAsWell"));
}

}  // namespace
}  // namespace sluice::kernels::conformance
