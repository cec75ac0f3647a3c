// What has flowed between this rank and each rank of its peers since it started: the numbers of proto KvFlow. Pure.
//
// A pair's machines live for one epoch; the book goes on. It remembers at most kMostPeers: of those that are down the
// one that has been so for longest is forgotten first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kvtransfer/peer_rank.h"
#include "proto/serving.pb.h"

namespace sluice::kvtransfer {

// Of one machine, so of one epoch.
struct EpochTotals {
  uint64_t bytes = 0;  // landed and acknowledged
  uint64_t pieces = 0;
  uint64_t corrupt_pieces = 0;
  uint64_t void_pieces = 0;
  uint64_t stale_messages = 0;
};

class FlowBook {
 public:
  static constexpr size_t kMostPeers = 64;

  // A new epoch begins.
  void Up(PeerRank peer, const std::string& channel);

  // Where the epoch is now. busy: something is granted and not acknowledged.
  void Update(PeerRank peer, const EpochTotals& totals, bool busy, absl::Time now);

  // The epoch is over. No-op for a pair that is not up.
  void Down(PeerRank peer, absl::Time now);

  // A transfer's end. exposed: of one that was committed.
  void Ended(PeerRank peer, bool committed, absl::Duration exposed);

  // All, in the order of their incarnations.
  std::vector<v1::KvFlow> flows() const;

  // Something has changed since the last call.
  bool TakeChanged();

 private:
  struct Flow {
    v1::KvFlow sum;  // without the epoch that is running
    EpochTotals epoch;
    absl::Duration busy, exposed;
    bool is_busy = false;
    absl::Time busy_since;
    uint64_t down_number = 0;  // grows with every pair that goes down
  };

  void Forget();

  std::map<PeerRank, Flow> flows_;
  uint64_t downs_ = 0;
  bool changed_ = false;
};

}  // namespace sluice::kvtransfer
