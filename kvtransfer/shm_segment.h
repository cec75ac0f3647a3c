// The shared memory of one shm channel: its layout, and mapping it on either side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

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

// First page of the segment. Written by the receiver before the memfd is handed over, except where noted.
struct ShmHeader {
  uint64_t magic;
  uint64_t window;
  uint64_t slot_bytes;
  // Which slot a posted sequence got: (sequence << 8 | slot), at [sequence % kMaxShmWindow]. Written by the receiver
  // before the grant goes out.
  std::atomic<uint64_t> slot_of[kMaxShmWindow];
  // Futex word: how many sequences were sent, mod 2^32. Written by the sender.
  alignas(64) std::atomic<uint32_t> sent;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

class ShmSegment {
 public:
  // A new sealed segment.
  static absl::StatusOr<ShmSegment> Create(const ChannelLimits& limits);
  // One that was handed over; refuses what has another shape or isn't sealed.
  static absl::StatusOr<ShmSegment> Map(Fd fd);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  int fd() const { return fd_.get(); }
  ShmHeader& header() { return *static_cast<ShmHeader*>(base_); }
  // The receiver's own notes, not what the shared header says now.
  const ChannelLimits& limits() const { return limits_; }
  std::span<std::byte> slot(int index);

 private:
  ShmSegment(Fd fd, void* base, size_t size, const ChannelLimits& limits)
      : fd_(std::move(fd)), base_(base), size_(size), limits_(limits) {}
  Fd fd_;
  void* base_;
  size_t size_;
  ChannelLimits limits_;
};

}  // namespace sluice::kvtransfer
