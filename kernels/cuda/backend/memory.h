// Memory of a device, and pinned memory of the host: freed by whoever owns it, never inside a step.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::kernels::cuda {

struct FreeDevice {
  void operator()(void* memory) const;
};
struct FreePinned {
  void operator()(void* memory) const;
};
using DeviceMemory = std::unique_ptr<void, FreeDevice>;
using PinnedMemory = std::unique_ptr<void, FreePinned>;

// On the thread's current device, at least 256-byte aligned; zeros. `what` is named in the error. Of no bytes: null.
absl::StatusOr<DeviceMemory> NewDeviceMemory(size_t bytes, std::string_view what);
absl::StatusOr<PinnedMemory> NewPinnedMemory(size_t bytes, std::string_view what);

}  // namespace sluice::kernels::cuda
