// The device memory of a decode rank that senders on other devices write into: one ring of slots a pair, taken when the
// pair is made. Freed only at the end, as that waits for the device.
//
// Safety: a sender that was given up may still be writing. Its ring is nobody's until that process has closed the
// channel's socket, and for kSettle after that, in which a device that it had kept busy comes to rest. Whatever comes
// later all the same is a wrong checksum, as that is taken from the words that are copied.
//
// Limit: `most` rings, those in quarantine included. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/device_links.h"
#include "kvtransfer/piece_copy.h"
#include "kvtransfer/shm_segment.h"  // Fd

namespace sluice::kvtransfer {

class DeviceRings {
 public:
  static constexpr absl::Duration kSettle = absl::Seconds(1);

  // `links` outlives the rings, which are freed with the last reference to this.
  DeviceRings(kernels::DeviceLinks& links, int most) : links_(links), most_(most) {}
  // Gives senders a moment to stop; the ring of one that does not stays as long as the process.
  ~DeviceRings();

  kernels::DeviceLinks& links() const { return links_; }

  // At least that many bytes. RESOURCE_EXHAUSTED where there are `most` and none is free.
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> Take(size_t bytes, absl::Time now);

  // peer: open as long as the sender may write; not ok(): there never was one.
  void GiveBack(std::unique_ptr<kernels::DeviceBuffer> ring, Fd peer);

 private:
  struct Resting {
    std::unique_ptr<kernels::DeviceBuffer> ring;
    Fd peer;
    absl::Time quiet_since = absl::InfiniteFuture();
  };

  kernels::DeviceLinks& links_;
  const int most_;
  absl::Mutex mutex_;
  int made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Resting> resting_ ABSL_GUARDED_BY(mutex_);  // free ones, and those in quarantine
};

// Of the pool's device; null where its bytes move by way of the host only.
std::shared_ptr<DeviceRings> RingsOf(const PoolView& kv, int most);

}  // namespace sluice::kvtransfer
