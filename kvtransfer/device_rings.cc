#include "kvtransfer/device_rings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kvtransfer/unix_rendezvous.h"

namespace sluice::kvtransfer {
namespace {

constexpr absl::Duration kFarewell = absl::Milliseconds(500);  // several ticks of an endpoint

}  // namespace

DeviceRings::~DeviceRings() {
  absl::MutexLock lock(&mutex_);
  const absl::Time until = absl::Now() + kFarewell;
  for (Resting& r : resting_) {
    if (!r.peer.ok()) continue;
    while (!PeerGone(r.peer.get()) && absl::Now() < until) absl::SleepFor(absl::Milliseconds(1));
    if (!PeerGone(r.peer.get())) (void)r.ring.release();
  }
}

absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> DeviceRings::Take(size_t bytes, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  for (Resting& r : resting_) {
    if (r.quiet_since != absl::InfiniteFuture() || !PeerGone(r.peer.get())) continue;
    r.peer.reset(-1);
    r.quiet_since = now;
  }
  const auto found = std::find_if(resting_.begin(), resting_.end(), [&](const Resting& r) {
    return r.ring->bytes().size() >= bytes && r.quiet_since != absl::InfiniteFuture() && now - r.quiet_since >= kSettle;
  });
  if (found != resting_.end()) {
    std::unique_ptr<kernels::DeviceBuffer> ring = std::move(found->ring);
    resting_.erase(found);
    return ring;
  }
  if (made_ >= most_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", most_, " receive buffers on the GPU are taken or were written to a moment ago"));
  }
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> ring = links_.NewShared(bytes);
  if (ring.ok()) ++made_;
  return ring;
}

void DeviceRings::GiveBack(std::unique_ptr<kernels::DeviceBuffer> ring, Fd peer) {
  absl::MutexLock lock(&mutex_);
  const absl::Time quiet_since = peer.ok() ? absl::InfiniteFuture() : absl::InfinitePast();
  resting_.push_back({std::move(ring), std::move(peer), quiet_since});
}

std::shared_ptr<DeviceRings> RingsOf(const PoolView& kv, int most) {
  return LinksOf(kv) == nullptr ? nullptr : std::make_shared<DeviceRings>(*LinksOf(kv), most);
}

}  // namespace sluice::kvtransfer
