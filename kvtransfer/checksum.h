// The checksum of KV bytes (kernels/kv_checksum.h) on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kv_checksum.h"

namespace sluice::kvtransfer {

using kernels::IndexKey, kernels::Mix, kernels::kIndexStep, kernels::kMixA, kernels::kMixB;

uint64_t Checksum(std::span<const std::byte> bytes);

// The same in steps, each while what it reads is in the cache anyway. `bytes` may be written up to where it is summed.
class RunningChecksum {
 public:
  explicit RunningChecksum(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Bytes before `end` are final. REQUIRES: no less than in the call before.
  void Cover(size_t end);

  // All are.
  uint64_t Finish();

 private:
  const std::span<const std::byte> bytes_;
  size_t summed_ = 0;  // bytes, in whole runs of vectors
  uint64_t total_ = 0;
};

}  // namespace sluice::kvtransfer
