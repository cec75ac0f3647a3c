#include "kvtransfer/cuda_ipc_channel.h"

#include <utility>

#include "absl/time/clock.h"
#include "kvtransfer/shm_ends.h"
#include "kvtransfer/shm_segment.h"
#include "kvtransfer/unix_rendezvous.h"

namespace sluice::kvtransfer {
namespace {

size_t RingBytes(const ChannelLimits& limits) {
  return size_t(limits.window) * ShmSegment::SlotStride(limits.max_piece_bytes);
}

}  // namespace

absl::StatusOr<CudaIpcReceiver> NewCudaIpcReceiver(const ChannelLimits& limits, std::shared_ptr<DeviceRings> rings,
                                                   ArrivalCallback on_arrival) {
  if (absl::Status bad = ShmSegment::Check(limits); !bad.ok()) return bad;
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> ring = rings->Take(RingBytes(limits), absl::Now());
  if (!ring.ok()) return ring.status();
  absl::StatusOr<ShmSegment> segment = ShmSegment::Create(limits, (*ring)->handle());
  absl::StatusOr<UnixListener> listener = UnixListener::Create();
  if (!segment.ok() || !listener.ok()) {
    rings->GiveBack(*std::move(ring), Fd());
    return segment.ok() ? listener.status() : segment.status();
  }
  std::string endpoint = listener->endpoint();
  auto channel = std::make_unique<ShmReceiveChannel>(*std::move(segment), *std::move(listener), std::move(on_arrival),
                                                     *std::move(ring), std::move(rings));
  channel->Start();
  return CudaIpcReceiver{std::move(channel), std::move(endpoint)};
}

absl::StatusOr<std::unique_ptr<SendChannel>> ConnectCudaIpcSender(const std::string& endpoint, absl::Duration timeout,
                                                                  kernels::DeviceLinks& device) {
  absl::StatusOr<UnixMeeting> met = MeetUnixListener(endpoint, timeout);
  if (!met.ok()) return met.status();
  absl::StatusOr<ShmSegment> segment = ShmSegment::Map(std::move(met->handed_over));
  if (!segment.ok()) return segment.status();
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> ring = device.OpenShared(segment->device_handle());
  if (!ring.ok()) return ring.status();
  if ((*ring)->bytes().size() < RingBytes(segment->limits())) {
    return absl::InvalidArgumentError("the peer's GPU memory holds fewer slots than its channel has");
  }
  return std::make_unique<ShmSendChannel>(*std::move(segment), std::move(met->socket), *std::move(ring), &device);
}

}  // namespace sluice::kvtransfer
