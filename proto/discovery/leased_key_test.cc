#include "proto/discovery/leased_key.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

namespace sluice::discovery {
namespace {

using Act = LeasedKey::Act;
using News = LeasedKey::News;

const absl::Time kStart = absl::UnixEpoch();

LeasedKeyOptions Options() {
  LeasedKeyOptions options;
  options.ttl = absl::Seconds(6);
  options.retry = {absl::Milliseconds(100), absl::Seconds(1)};
  return options;
}

TEST(LeasedKey, GrantsPutsAndKeepsAlive) {
  LeasedKey key(Options());
  absl::Time now = kStart;
  EXPECT_EQ(key.Next(now).act, Act::kGrant);
  key.OnGranted(7, absl::Seconds(9));  // etcd has the last word
  EXPECT_EQ(key.TakeNews(), News::kNone);
  EXPECT_EQ(key.Next(now).act, Act::kPut);
  EXPECT_EQ(key.lease(), 7);
  key.OnPut(now);
  EXPECT_EQ(key.TakeNews(), News::kStands);
  for (int round = 0; round < 3; ++round) {
    const LeasedKey::Step wait = key.Next(now);
    ASSERT_EQ(wait.act, Act::kWait);
    EXPECT_EQ(wait.until, now + absl::Seconds(3));
    now = wait.until;
    EXPECT_EQ(key.Next(now).act, Act::kKeepAlive);
    key.OnKeptAlive(absl::Seconds(9));
    EXPECT_EQ(key.Next(now).act, Act::kCheck);
    key.OnChecked(true, now);
    EXPECT_EQ(key.TakeNews(), News::kNone) << "told once";
  }
}

LeasedKey Standing() {
  LeasedKey key(Options());
  key.OnGranted(7, absl::Seconds(6));
  key.OnPut(kStart);
  key.TakeNews();
  return key;
}

TEST(LeasedKey, ALeaseThatEtcdDoesNotKnowIsGrantedAnew) {
  LeasedKey key = Standing();
  const absl::Time later = kStart + absl::Seconds(2);
  ASSERT_EQ(key.Next(later).act, Act::kKeepAlive);
  key.OnKeptAlive(absl::ZeroDuration());
  EXPECT_EQ(key.Next(later).act, Act::kGrant);
  EXPECT_EQ(key.lease(), 0);
}

TEST(LeasedKey, AKeyThatSomebodyTookAwayIsPutAgain) {
  LeasedKey key = Standing();
  const absl::Time later = kStart + absl::Seconds(2);
  key.OnKeptAlive(absl::Seconds(6));
  key.OnChecked(false, later);
  EXPECT_EQ(key.Next(later).act, Act::kPut);
  EXPECT_EQ(key.lease(), 7);
}

TEST(LeasedKey, AwayAndBackIsToldOnceAndPausesGrow) {
  LeasedKey key = Standing();
  absl::Time now = kStart + absl::Seconds(2);
  absl::Duration last;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(key.Next(now).act, Act::kKeepAlive);
    key.OnFailed(absl::UnavailableError("away"), 1.0, now);
    EXPECT_EQ(key.TakeNews(), i == 0 ? News::kFails : News::kNone);
    const LeasedKey::Step wait = key.Next(now);
    ASSERT_EQ(wait.act, Act::kWait);
    EXPECT_GE(wait.until - now, last);
    EXPECT_LE(wait.until - now, absl::Seconds(1));
    last = wait.until - now;
    now = wait.until;
  }
  EXPECT_EQ(last, absl::Seconds(1));
  key.OnKeptAlive(absl::ZeroDuration());  // it came back empty
  key.OnGranted(8, absl::Seconds(6));
  key.OnPut(now);
  EXPECT_EQ(key.TakeNews(), News::kStands);
  key.OnFailed(absl::UnavailableError("away"), 1.0, now);
  EXPECT_EQ(key.Next(now).until - now, absl::Milliseconds(100)) << "pauses are short again";
}

TEST(LeasedKey, LeasesThatVanishBeforeThePutAreNoTightLoop) {
  LeasedKey key(Options());
  absl::Time now = kStart;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(key.Next(now).act, Act::kGrant);
    key.OnGranted(i + 1, absl::Seconds(6));
    ASSERT_EQ(key.Next(now).act, Act::kPut);
    key.OnFailed(absl::NotFoundError("requested lease not found"), 1.0, now);
    now = key.Next(now).until;
  }
  EXPECT_GE(now - kStart, absl::Seconds(15));
}

// An etcd of a few lines that dies, comes back empty, loses keys and answers late: whatever happens, the key stands
// again within a third of the lease and two pauses once it is well, and never under another value.
TEST(LeasedKey, StandsAgainAfterAnyFaults) {
  const uint32_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    LeasedKey key(Options());
    absl::Time now = kStart;
    std::set<int64_t> leases;
    std::optional<int64_t> stands;  // under this lease
    int64_t next_lease = 1;
    bool up = true;
    const auto turn = [&] {
      const LeasedKey::Step step = key.Next(now);
      if (step.act == Act::kWait) {
        ASSERT_GT(step.until, now);
        now = step.until;
        return;
      }
      const double spread = std::uniform_real_distribution<double>(0, 1)(random);
      if (!up) return key.OnFailed(absl::UnavailableError("away"), spread, now);
      if (step.act == Act::kGrant) {
        leases.insert(next_lease);
        key.OnGranted(next_lease++, absl::Seconds(6));
      } else if (step.act == Act::kPut) {
        if (leases.count(key.lease()) == 0) return key.OnFailed(absl::NotFoundError("no lease"), spread, now);
        stands = key.lease();
        key.OnPut(now);
      } else if (step.act == Act::kKeepAlive) {
        key.OnKeptAlive(absl::Seconds(leases.count(key.lease()) ? 6 : 0));
      } else {
        key.OnChecked(stands == key.lease(), now);
      }
    };
    for (int i = 0; i < 60; ++i) {
      const uint32_t fault = random() % 10;
      if (fault == 0) up = !up;
      if (fault == 1) leases.clear(), stands.reset();  // empty, or the lease ran out
      if (fault == 2) stands.reset();
      turn();
    }
    up = true;
    const absl::Time well = now;
    while (now < well + absl::Seconds(5)) turn();
    ASSERT_TRUE(stands.has_value());
    EXPECT_EQ(*stands, key.lease());
    EXPECT_EQ(leases.count(*stands), 1u);
  }
}

}  // namespace
}  // namespace sluice::discovery
