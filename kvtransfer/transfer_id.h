// The name of one transfer at the prefill side: a lease of one decode worker.
#pragma once

#include <compare>
#include <cstdint>

namespace sluice::kvtransfer {

struct TransferId {
  uint64_t decode_incarnation = 0;
  uint64_t lease_id = 0;
  auto operator<=>(const TransferId&) const = default;
};

}  // namespace sluice::kvtransfer
