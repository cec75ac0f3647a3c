#include "router/breaker.h"

#include <gtest/gtest.h>

namespace sluice::router {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(BreakerTest, OpensAfterThreeCausesInARowAndHalfOpens) {
  Breaker breaker;
  absl::Time now = kStart;
  for (int i = 0; i < 20; ++i) breaker.Failed(now);
  EXPECT_TRUE(breaker.Allows(now)) << "one cause";
  breaker.Failed(now += absl::Seconds(1));
  EXPECT_TRUE(breaker.Allows(now));
  breaker.Failed(now += absl::Seconds(1));
  EXPECT_FALSE(breaker.Allows(now));
  EXPECT_FALSE(breaker.Allows(now + absl::Milliseconds(999)));
  now += absl::Seconds(1);
  EXPECT_TRUE(breaker.Allows(now)) << "half open";
  breaker.Dispatched(now);
  EXPECT_FALSE(breaker.Allows(now)) << "one try";
  breaker.Failed(now);
  EXPECT_EQ(breaker.open_until(), now + absl::Seconds(2)) << "for twice as long";
  breaker.Succeeded();
  EXPECT_TRUE(breaker.Allows(now));
  EXPECT_FALSE(breaker.open());
}

TEST(BreakerTest, ATryOfWhichNothingIsHeardIsNotTheLast) {
  Breaker breaker;
  absl::Time now = kStart;
  for (int i = 0; i < 3; ++i) breaker.Failed(now += absl::Seconds(1));
  breaker.Dispatched(now += absl::Seconds(1));
  EXPECT_TRUE(breaker.Allows(now + absl::Seconds(1)));
}

TEST(BreakerTest, PausesAreBounded) {
  Breaker breaker;
  absl::Time now = kStart;
  for (int i = 0; i < 100; ++i) breaker.Failed(now += absl::Seconds(60));
  EXPECT_EQ(breaker.open_until(), now + absl::Seconds(30));
}

}  // namespace
}  // namespace sluice::router
