#include "kvtransfer/lease_table.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace sluice::kvtransfer {
namespace {

const absl::Time kStart = absl::UnixEpoch();
absl::Time At(int ms) {
  return kStart + absl::Milliseconds(ms);
}

TEST(LeaseTable, ExpiresAtItsTermAndNotBefore) {
  LeaseTable leases(absl::Milliseconds(100));
  EXPECT_EQ(leases.NextExpiry(), absl::InfiniteFuture());
  const uint64_t id = leases.Grant(At(0));
  EXPECT_EQ(leases.NextExpiry(), At(100));
  EXPECT_TRUE(leases.Expire(At(99)).empty());
  EXPECT_EQ(leases.Expire(At(100)), std::vector<uint64_t>{id});
  EXPECT_TRUE(leases.Expire(At(1000)).empty());
  EXPECT_FALSE(leases.Renew(id, At(1000)));
  EXPECT_FALSE(leases.Release(id));
}

TEST(LeaseTable, AnOverdueLeaseCanBeRenewedUntilItIsCollected) {
  LeaseTable leases(absl::Milliseconds(100));
  const uint64_t id = leases.Grant(At(0));
  EXPECT_TRUE(leases.Renew(id, At(150)));
  EXPECT_TRUE(leases.Expire(At(249)).empty());
  EXPECT_EQ(leases.Expire(At(250)), std::vector<uint64_t>{id});
}

TEST(LeaseTable, RenewingWithAnEarlierTimeDoesNotShorten) {
  LeaseTable leases(absl::Milliseconds(100));
  const uint64_t id = leases.Grant(At(50));
  EXPECT_TRUE(leases.Renew(id, At(0)));
  EXPECT_EQ(leases.NextExpiry(), At(150));
}

// Random operations against a map that is searched naively.
TEST(LeaseTable, AgreesWithTheNaiveModel) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  LeaseTable leases(absl::Milliseconds(50));
  std::map<uint64_t, int> model;  // id -> expiry in ms
  std::set<uint64_t> ever;
  int now = 0;
  auto any_id = [&] { return uint64_t(random() % (ever.size() + 3)); };
  for (int i = 0; i < 20000; ++i) {
    now += int(random() % 8);
    switch (random() % 4) {
      case 0: {
        const uint64_t id = leases.Grant(At(now));
        ASSERT_TRUE(ever.insert(id).second) << "id " << id << " was used before";
        model[id] = now + 50;
        break;
      }
      case 1: {
        const uint64_t id = any_id();
        ASSERT_EQ(leases.Renew(id, At(now)), model.count(id) != 0);
        if (model.count(id)) model[id] = now + 50;
        break;
      }
      case 2: {
        const uint64_t id = any_id();
        ASSERT_EQ(leases.Release(id), model.erase(id) != 0);
        break;
      }
      case 3: {
        std::set<uint64_t> expected;
        for (auto it = model.begin(); it != model.end();) {
          if (it->second <= now) {
            expected.insert(it->first);
            it = model.erase(it);
          } else {
            ++it;
          }
        }
        const std::vector<uint64_t> ended = leases.Expire(At(now));
        ASSERT_EQ(std::set<uint64_t>(ended.begin(), ended.end()), expected);
        ASSERT_EQ(ended.size(), expected.size());
        break;
      }
    }
    ASSERT_EQ(leases.size(), model.size());
    int next = INT32_MAX;
    for (const auto& [id, expiry] : model) next = std::min(next, expiry);
    ASSERT_EQ(leases.NextExpiry(), model.empty() ? absl::InfiniteFuture() : At(next));
  }
}

TEST(LeaseTable, WhoWasAwayListensBeforeItExpires) {
  LeaseTable table(absl::Seconds(10));
  const absl::Time start = absl::UnixEpoch();
  const uint64_t a = table.Grant(start), b = table.Grant(start + absl::Seconds(1));
  const absl::Time back = start + absl::Seconds(19);  // nothing ran for nine seconds
  EXPECT_TRUE(table.Expire(back).empty());
  EXPECT_EQ(table.NextExpiry(), back + LeaseTable::kGrace);
  EXPECT_TRUE(table.Renew(a, back + absl::Milliseconds(400)));
  EXPECT_TRUE(table.Expire(back + absl::Milliseconds(500)).empty());
  EXPECT_EQ(table.Expire(back + LeaseTable::kGrace), std::vector<uint64_t>{b}) << "who is silent still ends";
  EXPECT_EQ(table.NextExpiry(), back + absl::Milliseconds(10400));
  EXPECT_EQ(table.Expire(back + absl::Milliseconds(10400)), std::vector<uint64_t>{a}) << "the grace is over";
}

TEST(LeaseTable, NobodyIsLateForALongStep) {
  LeaseTable table(absl::Seconds(10));
  const uint64_t a = table.Grant(absl::UnixEpoch());
  EXPECT_EQ(table.Expire(absl::UnixEpoch() + absl::Seconds(10) + LeaseTable::kLate), std::vector<uint64_t>{a});
}

}  // namespace
}  // namespace sluice::kvtransfer
