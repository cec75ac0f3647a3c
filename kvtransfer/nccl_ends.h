// The two ends of a channel over NCCL; see nccl_channel.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/device_rings.h"
#include "kvtransfer/shm_segment.h"

namespace sluice::kvtransfer {

inline constexpr size_t kNcclTokenBytes = 32;
inline constexpr char kNcclWelcome = 'n';

// A ring of this end's device memory, given back when this dies.
class NcclSlots {
 public:
  static size_t Bytes(const ChannelLimits& limits) {
    return size_t(limits.window) * ShmSegment::SlotStride(limits.max_piece_bytes);
  }

  NcclSlots(const ChannelLimits& limits, std::unique_ptr<kernels::DeviceBuffer> ring,
            std::shared_ptr<DeviceRings> rings)
      : limits_(limits), rings_(std::move(rings)), ring_(std::move(ring)) {}
  NcclSlots(NcclSlots&&) = default;
  ~NcclSlots() {
    if (ring_ != nullptr) rings_->GiveBack(std::move(ring_), Fd());
  }

  const ChannelLimits& limits() const { return limits_; }
  kernels::DeviceLinks& links() const { return rings_->links(); }
  std::span<std::byte> slot(uint64_t number, size_t bytes) const {
    return ring_->bytes().subspan(number * ShmSegment::SlotStride(limits_.max_piece_bytes), bytes);
  }

 private:
  ChannelLimits limits_;
  std::shared_ptr<DeviceRings> rings_;
  std::unique_ptr<kernels::DeviceBuffer> ring_;
};

// Lock order: mutex_ is a leaf; the arrival callback is called without it.
class NcclReceiveChannel final : public ReceiveChannel {
 public:
  NcclReceiveChannel(NcclSlots slots, Fd listener, std::string token, ArrivalCallback on_arrival);
  ~NcclReceiveChannel() override;
  // Once, before anything else.
  absl::Status Start(std::string id);

  absl::Status PostReceive(uint64_t sequence, size_t bytes) override;
  absl::StatusOr<std::span<const std::byte>> View(uint64_t sequence) override;
  void Release(uint64_t sequence) override;
  kernels::DeviceLinks* device() const override { return &slots_.links(); }
  absl::Status status() const override;
  void Close() override;

 private:
  struct Post {
    uint64_t slot = 0;
    size_t bytes = 0;
  };

  // On the pipe's thread.
  absl::Status AcceptPeer();
  absl::Status LookAtPeer();
  void Arrive(uint64_t sequence);

  const NcclSlots slots_;
  const std::string token_;
  const ArrivalCallback on_arrival_;
  Fd listener_, peer_;  // of the pipe's thread

  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Post> posts_ ABSL_GUARDED_BY(mutex_);  // posted, not released
  std::vector<uint64_t> free_slots_ ABSL_GUARDED_BY(mutex_);
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<kernels::DevicePipe> pipe_;  // last: its thread ends before all that it uses
};

class NcclSendChannel final : public SendChannel {
 public:
  NcclSendChannel(NcclSlots slots, Fd socket);
  ~NcclSendChannel() override { Close(); }
  // Once, before anything else.
  absl::Status Start(std::string id);

  bool ready() const override { return pipe_ != nullptr && pipe_->ready(); }
  absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) override;
  absl::Status Send(uint64_t sequence) override;
  kernels::DeviceLinks* device() const override { return &slots_.links(); }
  absl::Status status() const override;
  void Close() override;

 private:
  absl::Status LookAtPeer() const;

  const NcclSlots slots_;
  Fd socket_;
  uint64_t sent_ = 0;
  std::optional<std::span<std::byte>> buffer_;  // given, not sent

  mutable absl::Mutex mutex_;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;  // sequences that are through
  std::unique_ptr<kernels::DevicePipe> pipe_;  // last; null: closed
};

}  // namespace sluice::kvtransfer
