// Who may still hold a reservation. Pure: time comes in, from any clock that never goes back.
//
// Promises: ids count up from 1 and are never reused; a lease lives until Release or until the Expire call that returns
// it, so one that is overdue but not yet collected can still be renewed (a renewal that waited behind a long step is
// not punished for the wait). Renewing never shortens a lease. Who comes to Expire long after a lease was due did not
// listen meanwhile, because its machine stood still, say: the renewals may be in its sockets, so they get a moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace sluice::kvtransfer {

class LeaseTable {
 public:
  explicit LeaseTable(absl::Duration term) : term_(term) {}

  uint64_t Grant(absl::Time now);

  // The lease ends at now + term unless it already ends later. False if there is no such lease.
  bool Renew(uint64_t id, absl::Time now);

  bool Release(uint64_t id);

  static constexpr absl::Duration kLate = absl::Seconds(1);
  static constexpr absl::Duration kGrace = absl::Seconds(1);

  // Ends and returns the leases whose time is up, the earliest first; none for kGrace after a call that came more than
  // kLate too late.
  std::vector<uint64_t> Expire(absl::Time now);

  // When Expire has something to do; InfiniteFuture when there is no lease.
  absl::Time NextExpiry() const;

  absl::Duration term() const { return term_; }
  size_t size() const { return expiry_.size(); }
  bool contains(uint64_t id) const { return expiry_.count(id) != 0; }

 private:
  absl::Duration term_;
  uint64_t next_id_ = 1;
  // The same set of leases twice: by id and by time.
  std::unordered_map<uint64_t, absl::Time> expiry_;
  std::set<std::pair<absl::Time, uint64_t>> order_;
  absl::Time grace_end_ = absl::InfinitePast();  // else what is due now waits until then
};

}  // namespace sluice::kvtransfer
