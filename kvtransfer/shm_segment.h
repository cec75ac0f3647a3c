// The shared memory of one shm or cuda-ipc channel: its layout, and mapping it on either side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kvtransfer/channel.h"

namespace sluice::kvtransfer {

// An owned file descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Fd() { reset(-1); }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int release();
  void reset(int fd);

 private:
  int fd_;
};

inline constexpr int kMaxShmWindow = 64;
inline constexpr size_t kMaxDeviceHandle = 256;

// First page of the segment. Written by the receiver before the memfd is handed over, except where noted.
struct ShmHeader {
  uint64_t magic;
  uint64_t window;
  uint64_t slot_bytes;
  // Not empty: the slots are in the device memory that this names, and the segment ends behind the header.
  uint64_t device_handle_bytes;
  char device_handle[kMaxDeviceHandle];
  // Which slot a posted sequence got: (sequence << 8 | slot), at [sequence % kMaxShmWindow]. Written by the receiver
  // before the grant goes out.
  std::atomic<uint64_t> slot_of[kMaxShmWindow];
  // Futex word: how many sequences were sent, mod 2^32. Written by the sender.
  alignas(64) std::atomic<uint32_t> sent;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

class ShmSegment {
 public:
  static absl::Status Check(const ChannelLimits& limits);
  // From a slot to the next, here and in device memory.
  static size_t SlotStride(size_t max_piece_bytes) { return (max_piece_bytes + 4095) / 4096 * 4096; }

  // A new sealed segment.
  static absl::StatusOr<ShmSegment> Create(const ChannelLimits& limits, const std::string& device_handle = "");
  // One that was handed over; refuses what has another shape or isn't sealed.
  static absl::StatusOr<ShmSegment> Map(Fd fd);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  int fd() const { return fd_.get(); }
  ShmHeader& header() { return *static_cast<ShmHeader*>(base_); }
  // The receiver's own notes, not what the shared header says now.
  const ChannelLimits& limits() const { return limits_; }
  // As it was when the segment was made or mapped.
  const std::string& device_handle() const { return device_handle_; }
  // Of the slots. REQUIRES: they are not in device memory.
  std::byte* slots();

 private:
  ShmSegment(Fd fd, void* base, size_t size, const ChannelLimits& limits, std::string device_handle)
      : fd_(std::move(fd)), base_(base), size_(size), limits_(limits), device_handle_(std::move(device_handle)) {}
  Fd fd_;
  void* base_;
  size_t size_;
  ChannelLimits limits_;
  std::string device_handle_;
};

}  // namespace sluice::kvtransfer
