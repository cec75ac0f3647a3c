// The two ends of a channel within a host: what was granted and sent is told through a shared segment, the pieces
// themselves lie in the segment (shm_channel.h) or in the receiver's device memory (cuda_ipc_channel.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/device_rings.h"
#include "kvtransfer/shm_segment.h"
#include "kvtransfer/unix_rendezvous.h"

namespace sluice::kvtransfer {

// Lock order: mutex_ is a leaf; the arrival callback is called without it.
class ShmReceiveChannel final : public ReceiveChannel {
 public:
  // ring: of device memory, for pieces that are to come there, and where it came from; else null.
  ShmReceiveChannel(ShmSegment segment, UnixListener listener, ArrivalCallback on_arrival,
                    std::unique_ptr<kernels::DeviceBuffer> ring = nullptr,
                    std::shared_ptr<DeviceRings> rings = nullptr);
  ~ShmReceiveChannel() override;
  void Start();

  absl::Status PostReceive(uint64_t sequence, size_t bytes) override;
  absl::StatusOr<std::span<const std::byte>> View(uint64_t sequence) override;
  void Release(uint64_t sequence) override;
  kernels::DeviceLinks* device() const override { return rings_ == nullptr ? nullptr : &rings_->links(); }
  absl::Status status() const override;
  void Close() override;

 private:
  struct Post {
    int slot = 0;
    size_t bytes = 0;
  };

  void Fail(const absl::Status& why);
  // Waits for the peer, then for what it sends, until the channel fails.
  void Run();
  bool TakeArrivals(uint32_t seen);

  ShmSegment segment_;
  const ArrivalCallback on_arrival_;
  const std::shared_ptr<DeviceRings> rings_;
  std::unique_ptr<kernels::DeviceBuffer> ring_;
  std::byte* const slots_;
  // Of the thread.
  UnixListener listener_;
  Fd peer_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Post> posts_ ABSL_GUARDED_BY(mutex_);  // posted, not released
  std::vector<int> free_slots_ ABSL_GUARDED_BY(mutex_);
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ShmSendChannel final : public SendChannel {
 public:
  // ring: the receiver's, of device memory, where pieces go there; else null.
  ShmSendChannel(ShmSegment segment, Fd socket, std::unique_ptr<kernels::DeviceBuffer> ring = nullptr,
                 kernels::DeviceLinks* device = nullptr);
  ~ShmSendChannel() override { Close(); }

  absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) override;
  absl::Status Send(uint64_t sequence) override;
  kernels::DeviceLinks* device() const override { return device_; }
  absl::Status status() const override;
  void Close() override;

 private:
  ShmSegment segment_;
  Fd socket_;
  std::unique_ptr<kernels::DeviceBuffer> ring_;
  kernels::DeviceLinks* const device_;
  std::byte* slots_;
  uint64_t sent_ = 0;
  bool closed_ = false;
};

}  // namespace sluice::kvtransfer
