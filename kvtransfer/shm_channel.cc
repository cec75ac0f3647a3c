#include "kvtransfer/shm_channel.h"

#include <utility>

#include "kvtransfer/shm_ends.h"
#include "kvtransfer/shm_segment.h"
#include "kvtransfer/unix_rendezvous.h"

namespace sluice::kvtransfer {

absl::StatusOr<ShmReceiver> NewShmReceiver(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  absl::StatusOr<ShmSegment> segment = ShmSegment::Create(limits);
  if (!segment.ok()) return segment.status();
  absl::StatusOr<UnixListener> listener = UnixListener::Create();
  if (!listener.ok()) return listener.status();
  std::string endpoint = listener->endpoint();
  auto channel = std::make_unique<ShmReceiveChannel>(*std::move(segment), *std::move(listener), std::move(on_arrival));
  channel->Start();
  return ShmReceiver{std::move(channel), std::move(endpoint)};
}

absl::StatusOr<std::unique_ptr<SendChannel>> ConnectShmSender(const std::string& endpoint, absl::Duration timeout) {
  absl::StatusOr<UnixMeeting> met = MeetUnixListener(endpoint, timeout);
  if (!met.ok()) return met.status();
  absl::StatusOr<ShmSegment> segment = ShmSegment::Map(std::move(met->handed_over));
  if (!segment.ok()) return segment.status();
  if (!segment->device_handle().empty()) {
    return absl::InvalidArgumentError("the peer's shared memory channel has its pieces in a GPU");
  }
  return std::make_unique<ShmSendChannel>(*std::move(segment), std::move(met->socket));
}

}  // namespace sluice::kvtransfer
