// What stands in etcd under a prefix, kept up to date: what to do next, and what is known. Pure: no etcd, no clock, no
// threads; key_watcher.h carries it out.
//
// list -> watch from the revision behind the list -> ... A watch that breaks, is cancelled, or asks for revisions that
// are compacted away begins with a list again, never with an old revision: an etcd that came back empty counts from the
// beginning, and would be silent for ever. One that came back empty in the moment between a list and its watch is known
// by its smaller revision; if it has been written as often meanwhile, it is not noticed before the next break. While
// etcd is away what was known last holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/discovery/backoff.h"

namespace sluice::discovery {

// One message of a watch.
struct WatchNews {
  struct Change {
    std::string key;
    std::string value;
    bool gone = false;
  };
  std::vector<Change> changes;
  bool canceled = false;
  int64_t revision = 0;          // of the store when it said so; 0: unknown
  int64_t compact_revision = 0;  // above 0: canceled because what it asked for is forgotten
};

class KeyListing {
 public:
  using Keys = std::map<std::string, std::string>;
  enum class Act { kWait, kList, kWatch };
  struct Step {
    Act act = Act::kWait;
    int64_t revision = 0;  // of kWatch: the first that is new
    absl::Time until;      // of kWait
  };
  enum class News { kNone, kFollows, kFails };

  explicit KeyListing(RetryPace retry) : backoff_(retry) {}

  Step Next(absl::Time now) const;

  void OnListed(Keys keys, int64_t revision);
  // Whether the watch goes on; if not, Next says what instead.
  bool OnWatched(const WatchNews& news, double spread, absl::Time now);
  void OnFailed(double spread, absl::Time now);  // of a list or a watch

  const Keys& keys() const { return keys_; }
  bool TakeChanged() { return std::exchange(changed_, false); }  // keys(), since the last call
  News TakeNews() { return std::exchange(news_, News::kNone); }  // to be told once

 private:
  Backoff backoff_;
  Act act_ = Act::kList;
  absl::Time at_ = absl::InfinitePast();
  int64_t revision_ = 0;
  Keys keys_;
  bool changed_ = false;
  News told_ = News::kNone;
  News news_ = News::kNone;
};

}  // namespace sluice::discovery
