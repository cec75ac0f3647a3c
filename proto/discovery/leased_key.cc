#include "proto/discovery/leased_key.h"

#include <utility>

namespace sluice::discovery {

LeasedKey::Step LeasedKey::Next(absl::Time now) const {
  if (now < at_) return {Act::kWait, at_};
  return {act_, now};
}

void LeasedKey::OnGranted(int64_t lease, absl::Duration ttl) {
  lease_ = lease;
  ttl_ = ttl > absl::ZeroDuration() ? ttl : options_.ttl;
  act_ = Act::kPut;
  at_ = absl::InfinitePast();
}

void LeasedKey::OnPut(absl::Time now) {
  Stands(now);
}

void LeasedKey::OnKeptAlive(absl::Duration ttl) {
  at_ = absl::InfinitePast();
  if (ttl <= absl::ZeroDuration()) return Lost();
  ttl_ = ttl;
  act_ = Act::kCheck;
}

void LeasedKey::OnChecked(bool stands, absl::Time now) {
  if (stands) return Stands(now);
  act_ = Act::kPut;
  at_ = absl::InfinitePast();
}

void LeasedKey::OnFailed(const absl::Status& status, double spread, absl::Time now) {
  if (absl::IsNotFound(status)) Lost();
  at_ = now + backoff_.Next(spread);
  if (told_ != News::kFails) told_ = news_ = News::kFails;
}

LeasedKey::News LeasedKey::TakeNews() {
  return std::exchange(news_, News::kNone);
}

// Only here the pauses are short again: a lease that is granted and then unknown each time is a failure, too.
void LeasedKey::Stands(absl::Time now) {
  backoff_.Reset();
  act_ = Act::kKeepAlive;
  at_ = now + ttl_ / 3;
  if (told_ != News::kStands) told_ = news_ = News::kStands;
}

void LeasedKey::Lost() {
  lease_ = 0;
  act_ = Act::kGrant;
}

}  // namespace sluice::discovery
