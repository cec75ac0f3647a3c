// What the ranks of one instance do together. A rank is a process (or, in tests, a thread) with its part of the weights
// and of the KV heads; every linear layer is split by its outputs alone, so no sum is split, and all that ranks
// exchange is columns: results have the bits of one rank, in every arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace sluice::kernels {

class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Whether a rank is known to be lost: what the others wait for elsewhere won't come either. Any thread.
  virtual bool lost() const { return false; }

  enum class To : uint8_t { kAll, kRank0 };

  // rows [count][ld], of which rank r filled the columns [borders[r], borders[r + 1]): afterwards whoever is asked for
  // has them all. All ranks call it in the same order with the same arguments. UNAVAILABLE once a rank is lost: nobody
  // waits for it, and every later call fails at once.
  virtual absl::Status Gather(float* rows, int64_t ld, int64_t count, std::span<const int64_t> borders, To to) = 0;
};

}  // namespace sluice::kernels
