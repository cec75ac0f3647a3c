#include "proto/discovery/key_listing.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::discovery {
namespace {

using Act = KeyListing::Act;
using News = KeyListing::News;

const absl::Time kNow = absl::UnixEpoch();
const RetryPace kPace = {absl::Milliseconds(100), absl::Seconds(1)};

WatchNews Put(const std::string& key, const std::string& value) {
  WatchNews news;
  news.changes.push_back({key, value, false});
  return news;
}

WatchNews Gone(const std::string& key) {
  WatchNews news;
  news.changes.push_back({key, "", true});
  return news;
}

TEST(KeyListing, ListsThenWatchesFromTheNextRevision) {
  KeyListing listing(kPace);
  EXPECT_EQ(listing.Next(kNow).act, Act::kList);
  listing.OnListed({{"a", "1"}}, 41);
  EXPECT_TRUE(listing.TakeChanged());
  EXPECT_FALSE(listing.TakeChanged());
  EXPECT_EQ(listing.Next(kNow).act, Act::kWatch);
  EXPECT_EQ(listing.Next(kNow).revision, 42);
  EXPECT_TRUE(listing.OnWatched({}, 1.0, kNow));  // created
  EXPECT_EQ(listing.TakeNews(), News::kFollows);
  EXPECT_FALSE(listing.TakeChanged());
  EXPECT_TRUE(listing.OnWatched(Put("b", "2"), 1.0, kNow));
  EXPECT_TRUE(listing.TakeChanged());
  EXPECT_TRUE(listing.OnWatched(Gone("a"), 1.0, kNow));
  EXPECT_EQ(listing.keys(), (KeyListing::Keys{{"b", "2"}}));
  EXPECT_TRUE(listing.TakeChanged());
  EXPECT_TRUE(listing.OnWatched(Put("b", "2"), 1.0, kNow));
  EXPECT_TRUE(listing.OnWatched(Gone("x"), 1.0, kNow));
  EXPECT_FALSE(listing.TakeChanged()) << "nothing is another";
}

KeyListing Following() {
  KeyListing listing(kPace);
  listing.OnListed({{"a", "1"}}, 41);
  listing.OnWatched({}, 1.0, kNow);
  listing.TakeChanged();
  listing.TakeNews();
  return listing;
}

TEST(KeyListing, WhileEtcdIsAwayWhatIsKnownHoldsAndItIsToldOnce) {
  KeyListing listing = Following();
  absl::Time now = kNow;
  for (int i = 0; i < 10; ++i) {
    listing.OnFailed(1.0, now);
    EXPECT_EQ(listing.TakeNews(), i == 0 ? News::kFails : News::kNone);
    const KeyListing::Step wait = listing.Next(now);
    ASSERT_EQ(wait.act, Act::kWait);
    EXPECT_LE(wait.until - now, absl::Seconds(1));
    now = wait.until;
    EXPECT_EQ(listing.Next(now).act, Act::kList) << "never a watch from an old revision";
  }
  EXPECT_EQ(listing.keys(), (KeyListing::Keys{{"a", "1"}}));
  EXPECT_FALSE(listing.TakeChanged());
  listing.OnListed({}, 1);  // it came back empty
  EXPECT_EQ(listing.TakeNews(), News::kNone) << "only a watch that stands is well";
  EXPECT_EQ(listing.Next(now).revision, 2);
  EXPECT_TRUE(listing.OnWatched({}, 1.0, now));
  EXPECT_EQ(listing.TakeNews(), News::kFollows);
}

TEST(KeyListing, ACompactedRevisionIsListedAnewAtOnceButNotInATightLoop) {
  KeyListing listing = Following();
  WatchNews compacted;
  compacted.canceled = true;
  compacted.compact_revision = 50;
  EXPECT_FALSE(listing.OnWatched(compacted, 1.0, kNow));
  EXPECT_EQ(listing.Next(kNow).act, Act::kList);
  EXPECT_EQ(listing.TakeNews(), News::kNone) << "nothing is wrong";
  listing.OnListed({{"a", "1"}}, 50);
  EXPECT_FALSE(listing.OnWatched(compacted, 1.0, kNow));
  EXPECT_EQ(listing.Next(kNow).act, Act::kWait);
}

TEST(KeyListing, ACancelledWatchIsAFailure) {
  KeyListing listing = Following();
  WatchNews canceled;
  canceled.canceled = true;
  EXPECT_FALSE(listing.OnWatched(canceled, 1.0, kNow));
  EXPECT_EQ(listing.Next(kNow).act, Act::kWait);
  EXPECT_EQ(listing.TakeNews(), News::kFails);
}

TEST(KeyListing, AStoreThatIsYoungerThanTheListIsListedAgain) {
  KeyListing listing(kPace);
  listing.OnListed({{"a", "1"}}, 50);
  WatchNews created;
  created.revision = 3;
  EXPECT_FALSE(listing.OnWatched(created, 0.5, kNow));
  EXPECT_EQ(listing.Next(kNow + absl::Minutes(1)).act, Act::kList);
  listing.OnListed({}, 3);
  EXPECT_TRUE(listing.OnWatched(created, 0.5, kNow));
}

// A store with revisions that is written, compacted, broken off and emptied: once it is well, what is known is what
// stands.
TEST(KeyListing, EndsWithWhatStandsAfterAnyFaults) {
  const uint32_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    KeyListing listing(kPace);
    absl::Time now = kNow;
    KeyListing::Keys store;
    std::vector<WatchNews> history;  // [revision - 1]
    size_t compacted = 0, watched = 0;
    bool up = true, watching = false;
    const auto fail = [&] {
      watching = false;
      listing.OnFailed(0.5, now);
    };
    const auto turn = [&] {
      const KeyListing::Step step = listing.Next(now);
      if (watching) {
        if (!up) return fail();
        while (watched < history.size()) ASSERT_TRUE(listing.OnWatched(history[watched++], 0.5, now));
        return;
      }
      if (step.act == Act::kWait) {
        now = step.until;
      } else if (!up) {
        fail();
      } else if (step.act == Act::kList) {
        listing.OnListed(store, int64_t(history.size()));
      } else if (size_t(step.revision) <= compacted) {
        WatchNews news;
        news.canceled = true;
        news.compact_revision = int64_t(compacted);
        ASSERT_FALSE(listing.OnWatched(news, 0.5, now));
      } else {
        watching = true;
        watched = size_t(step.revision) - 1;
        ASSERT_TRUE(listing.OnWatched({}, 0.5, now));
      }
    };
    for (int i = 0; i < 200; ++i) {
      const std::string key(1, char('a' + random() % 4));
      switch (random() % 12) {
        case 0:
          up = !up;
          if (watching) fail();  // it was cut off
          break;
        case 1:
          compacted = history.size();
          break;
        case 2:  // back, and empty
          // Not between a list and its watch: that is the next test's.
          if (!up && listing.Next(now).act != Act::kWatch) history.clear(), store.clear(), compacted = 0;
          break;
        case 3:
        case 4:
        case 5:
          if (!up) break;
          store[key] = std::to_string(random() % 3);
          history.push_back(Put(key, store[key]));
          break;
        case 6:
          if (up && store.erase(key)) history.push_back(Gone(key));
          break;
        default:
          turn();
      }
    }
    up = true;
    for (int i = 0; i < 10; ++i) turn();
    EXPECT_EQ(listing.keys(), store);
  }
}

}  // namespace
}  // namespace sluice::discovery
