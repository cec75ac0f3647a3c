#include "proto/discovery/key_listing.h"

namespace sluice::discovery {

KeyListing::Step KeyListing::Next(absl::Time now) const {
  if (now < at_) return {Act::kWait, 0, at_};
  return {act_, revision_ + 1, now};
}

void KeyListing::OnListed(Keys keys, int64_t revision) {
  changed_ = changed_ || keys != keys_;
  keys_ = std::move(keys);
  revision_ = revision;
  act_ = Act::kWatch;
}

bool KeyListing::OnWatched(const WatchNews& news, double spread, absl::Time now) {
  if (news.canceled && news.compact_revision > 0 && backoff_.failures() == 0) {
    // Others wrote and compacted between the list and the watch: nothing is wrong, a new list has it all. Twice in a
    // row it waits like any failure.
    act_ = Act::kList;
    at_ = now;
    backoff_.Next(spread);
    return false;
  }
  // A store that is younger than the list came back empty between the two: it would be silent until it has caught up.
  const bool younger = news.revision > 0 && news.revision < revision_;
  if (news.canceled || younger) {
    OnFailed(spread, now);
    return false;
  }
  backoff_.Reset();
  if (told_ != News::kFollows) told_ = news_ = News::kFollows;
  for (const WatchNews::Change& change : news.changes) {
    if (change.gone) {
      changed_ = keys_.erase(change.key) > 0 || changed_;
    } else if (auto [it, fresh] = keys_.try_emplace(change.key, change.value); fresh || it->second != change.value) {
      it->second = change.value;
      changed_ = true;
    }
  }
  return true;
}

void KeyListing::OnFailed(double spread, absl::Time now) {
  act_ = Act::kList;
  at_ = now + backoff_.Next(spread);
  if (told_ != News::kFails) told_ = news_ = News::kFails;
}

}  // namespace sluice::discovery
