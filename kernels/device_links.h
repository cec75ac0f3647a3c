// How bytes get from the memory of one device into another's, with no CUDA in sight: what KV channels between GPUs are
// made of (kvtransfer/cuda_ipc_channel.h). The backend's plugin implements it; KvPool::device()->links() has it.
//
// Spans are of device memory where a name says so: nobody but the backend may read or write what they hold.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::kernels {

// Device memory, 256-byte aligned, for as long as this lives.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  std::span<std::byte> bytes() const { return bytes_; }
  // What another process of this host opens it by (DeviceLinks::OpenShared); empty where it was opened itself.
  const std::string& handle() const { return handle_; }

 protected:
  DeviceBuffer(std::span<std::byte> bytes, std::string handle) : bytes_(bytes), handle_(std::move(handle)) {}

 private:
  std::span<std::byte> bytes_;
  std::string handle_;
};

// Of the device of one pool, which outlives all that comes from here. Thread-safe.
class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;

  // Between this device's memory, or what was opened, and the host's; returns when the bytes are there.
  virtual absl::Status Read(std::span<const std::byte> device, std::span<std::byte> host) = 0;
  virtual absl::Status Write(std::span<const std::byte> host, std::span<std::byte> device) = 0;

  // Memory of this device that other processes of this host may open. Allocates, so not for while a step waits.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> NewShared(size_t bytes) = 0;

  // INVALID_ARGUMENT for what is no handle; FAILED_PRECONDITION where this device can't reach that memory, or its
  // process is gone. Whoever made it must not free it before this is closed.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> OpenShared(std::string_view handle) = 0;
};

}  // namespace sluice::kernels
