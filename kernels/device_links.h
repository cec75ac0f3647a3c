// How bytes get from the memory of one device into another's, with no CUDA in sight: what KV channels between GPUs are
// made of (kvtransfer/cuda_ipc_channel.h, nccl_channel.h). The backend's plugin implements it;
// KvPool::device()->links() has it.
//
// Spans are of device memory where a name says so: nobody but the backend may read or write what they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

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

// One end of a one-way path between two devices, on which bytes go in the order in which both ends queue them. A thread
// of its own issues them and looks after them.
class DevicePipe {
 public:
  virtual ~DevicePipe() = default;  // gives up what is under way; afterwards nothing reads or writes its bytes

  // Both ends have met. Once true, it stays so.
  virtual bool ready() const = 0;

  // Device memory of this end, which stays until these bytes are through. Both ends queue the same sizes in the same
  // order. Never waits, and may be called before the ends have met; after an error it does nothing.
  virtual void Queue(std::span<std::byte> bytes) = 0;

  // The first failure: the ends did not meet in time (DEADLINE_EXCEEDED), the peer was lost, bytes were stuck.
  virtual absl::Status status() const = 0;
};

struct DevicePipeOptions {
  std::string id;  // NewPipeId() of one of the two
  bool sends = false;
  std::string purpose;                                 // opens every error
  absl::Duration meeting_timeout = absl::Seconds(10);  // for both ends to meet, once `meet` has ended
  absl::Duration progress_timeout =
      absl::Seconds(20);                         // for bytes that were queued, from when those before are through
  std::function<absl::Status()> meet;            // may be null; before anything else, on the pipe's thread
  std::function<absl::Status()> peer;            // not OK: the other end is known to be lost. Asked often
  std::function<void(uint64_t number)> on_done;  // bytes are through: of the number-th Queue, from 0, in order
};

// Of the device of one pool, which outlives all that comes from here. Thread-safe.
class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;

  // Names the physical device, the same in every process.
  virtual std::string device_id() const = 0;

  // Between this device's memory, or what was opened, and the host's; returns when the bytes are there.
  virtual absl::Status Read(std::span<const std::byte> device, std::span<std::byte> host) = 0;
  virtual absl::Status Write(std::span<const std::byte> host, std::span<std::byte> device) = 0;

  // Memory of this device that other processes of this host may open. Allocates, so not for while a step waits.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> NewShared(size_t bytes) = 0;

  // INVALID_ARGUMENT for what is no handle; FAILED_PRECONDITION where this device can't reach that memory, or its
  // process is gone. Whoever made it must not free it before this is closed.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> OpenShared(std::string_view handle) = 0;

  // Pipes go over NCCL. pipes(): FAILED_PRECONDITION, saying what to do, where it can't be had; the others say the same
  // then. The two devices must differ.
  virtual absl::Status pipes() = 0;
  virtual absl::StatusOr<std::string> NewPipeId() = 0;
  virtual absl::StatusOr<std::unique_ptr<DevicePipe>> NewPipe(DevicePipeOptions options) = 0;
};

}  // namespace sluice::kernels
