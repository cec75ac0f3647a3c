#include "kvtransfer/lease_table.h"

#include <algorithm>

namespace sluice::kvtransfer {

uint64_t LeaseTable::Grant(absl::Time now) {
  const uint64_t id = next_id_++;
  expiry_.emplace(id, now + term_);
  order_.emplace(now + term_, id);
  return id;
}

bool LeaseTable::Renew(uint64_t id, absl::Time now) {
  auto it = expiry_.find(id);
  if (it == expiry_.end()) return false;
  if (now + term_ <= it->second) return true;
  order_.erase({it->second, id});
  it->second = now + term_;
  order_.emplace(it->second, id);
  return true;
}

bool LeaseTable::Release(uint64_t id) {
  auto it = expiry_.find(id);
  if (it == expiry_.end()) return false;
  order_.erase({it->second, id});
  expiry_.erase(it);
  return true;
}

std::vector<uint64_t> LeaseTable::Expire(absl::Time now) {
  std::vector<uint64_t> ended;
  const bool due = !order_.empty() && order_.begin()->first <= now;
  if (due && grace_end_ == absl::InfinitePast() && now - order_.begin()->first > kLate) grace_end_ = now + kGrace;
  if (due && now < grace_end_) return ended;
  grace_end_ = absl::InfinitePast();
  while (!order_.empty() && order_.begin()->first <= now) {
    ended.push_back(order_.begin()->second);
    expiry_.erase(order_.begin()->second);
    order_.erase(order_.begin());
  }
  return ended;
}

absl::Time LeaseTable::NextExpiry() const {
  return order_.empty() ? absl::InfiniteFuture() : std::max(order_.begin()->first, grace_end_);
}

}  // namespace sluice::kvtransfer
