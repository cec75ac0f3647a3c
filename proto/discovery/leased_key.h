// Keeps one key in etcd as long as its owner lives: what to do next, from what came of what was done. Pure: no etcd, no
// clock, no threads; key_keeper.h carries it out.
//
// grant a lease -> put the key under it -> at a third of its time: keep it alive, look whether the key stands -> ...
//
// Any failure is tried again with growing pauses, without end. A lease that etcd does not know (any more; it may have
// come back empty) is granted anew, and a key that somebody took away is put again.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/discovery/backoff.h"

namespace sluice::discovery {

struct LeasedKeyOptions {
  absl::Duration ttl = absl::Seconds(5);  // whole seconds; etcd may make it longer
  RetryPace retry;
};

class LeasedKey {
 public:
  enum class Act { kWait, kGrant, kPut, kKeepAlive, kCheck };
  struct Step {
    Act act = Act::kWait;
    absl::Time until;  // of kWait
  };
  // What changed with the last answer, to be told once.
  enum class News { kNone, kStands, kFails };

  explicit LeasedKey(LeasedKeyOptions options) : options_(options), backoff_(options.retry) {}

  Step Next(absl::Time now) const;

  // The answer to the last step. A lease that is kept alive with no time left is none.
  void OnGranted(int64_t lease, absl::Duration ttl);
  void OnPut(absl::Time now);
  void OnKeptAlive(absl::Duration ttl);
  void OnChecked(bool stands, absl::Time now);
  void OnFailed(const absl::Status& status, double spread, absl::Time now);

  int64_t lease() const { return lease_; }  // 0: none
  News TakeNews();

 private:
  void Stands(absl::Time now);
  void Lost();

  const LeasedKeyOptions options_;
  Backoff backoff_;
  Act act_ = Act::kGrant;
  absl::Time at_ = absl::InfinitePast();  // when act_ is due
  int64_t lease_ = 0;
  absl::Duration ttl_;
  News told_ = News::kNone;
  News news_ = News::kNone;
};

}  // namespace sluice::discovery
