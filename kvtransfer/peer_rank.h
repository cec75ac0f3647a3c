// Names one rank of a peer's life.
#pragma once

#include <compare>
#include <cstdint>

namespace sluice::kvtransfer {

struct PeerRank {
  uint64_t incarnation = 0;
  int rank = 0;

  auto operator<=>(const PeerRank&) const = default;
};

}  // namespace sluice::kvtransfer
