#include "worker/error_info.h"

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

// Whoever asked hears of a lost rank as of a lost worker, whichever of the two is noticed first.
TEST(ErrorInfo, ALostRankIsALostWorker) {
  const v1::ErrorInfo lost = ErrorOfFailedEngine(absl::UnavailableError("a rank of this instance was lost"));
  EXPECT_EQ(lost.reason(), v1::WORKER_LOST);
  EXPECT_EQ(lost.code(), int(absl::StatusCode::kUnavailable));
  EXPECT_EQ(lost.message(), "a rank of this instance was lost");
}

TEST(ErrorInfo, AFailedStepIsADefect) {
  const v1::ErrorInfo failed = ErrorOfFailedEngine(absl::InternalError("the device is broken"));
  EXPECT_EQ(failed.reason(), v1::INTERNAL_ERROR);
  EXPECT_EQ(failed.code(), int(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace sluice::worker
