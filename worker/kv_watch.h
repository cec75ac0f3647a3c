// An engine's KV on a device, watched: a failure that the device does not recover from is told, whoever met it.
// Transfers between workers run beside the steps, and on a decode worker they may be all that ever touches a device
// that has failed: no request would get as far as a step, and the worker would fail each of them for ever.
#pragma once

#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace sluice::worker {

class KvWatch final : public kernels::DeviceKv {
 public:
  // `kv` outlives this. `failed` is called on the thread that moves KV, perhaps several times. Memory that is short for
  // a moment, and what is wrong with one call alone, is no such failure.
  KvWatch(kernels::DeviceKv& kv, std::function<void(const absl::Status&)> failed);

  absl::StatusOr<uint64_t> Gather(const kernels::KvSlice& slice, std::span<std::byte> out) override;
  absl::StatusOr<uint64_t> Scatter(const kernels::KvSlice& slice, std::span<const std::byte> in) override;
  absl::StatusOr<uint64_t> GatherOnDevice(const kernels::KvSlice& slice, std::span<std::byte> out) override;
  absl::StatusOr<uint64_t> ScatterOnDevice(const kernels::KvSlice& slice, std::span<const std::byte> in) override;
  kernels::DeviceLinks* links() override { return kv_.links(); }

 private:
  absl::StatusOr<uint64_t> Look(absl::StatusOr<uint64_t> moved) const;

  kernels::DeviceKv& kv_;
  const std::function<void(const absl::Status&)> failed_;
};

}  // namespace sluice::worker
