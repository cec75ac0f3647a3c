#include "kvtransfer/nccl_channel.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kvtransfer/nccl_ends.h"
#include "kvtransfer/shm_segment.h"
#include "kvtransfer/tcp_socket.h"

namespace sluice::kvtransfer {
namespace {

constexpr size_t kPortBytes = 2;

absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> TakeRing(DeviceRings& rings, const ChannelLimits& limits) {
  if (absl::Status bad = ShmSegment::Check(limits); !bad.ok()) return bad;
  auto ring = rings.Take(NcclSlots::Bytes(limits), absl::Now());
  if (!absl::IsResourceExhausted(ring.status())) return ring;
  // Rings of this channel have no quarantine: another attempt would not find one either.
  return absl::FailedPreconditionError(ring.status().message());
}

}  // namespace

absl::StatusOr<NcclReceiver> NewNcclReceiver(const std::string& host, const ChannelLimits& limits,
                                             std::shared_ptr<DeviceRings> rings, ArrivalCallback on_arrival) {
  absl::StatusOr<std::string> id = rings->links().NewPipeId();
  if (!id.ok()) return id.status();
  std::string token(kNcclTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) != ssize_t(token.size())) return absl::ErrnoToStatus(errno, "getrandom");
  int port = 0;
  absl::StatusOr<Fd> listener = ListenTcp(host, &port);
  if (!listener.ok()) return listener.status();
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> ring = TakeRing(*rings, limits);
  if (!ring.ok()) return ring.status();
  std::string endpoint = {char(port >> 8), char(port & 0xff)};
  absl::StrAppend(&endpoint, token, *id);
  auto channel = std::make_unique<NcclReceiveChannel>(NcclSlots(limits, *std::move(ring), std::move(rings)),
                                                      *std::move(listener), std::move(token), std::move(on_arrival));
  if (absl::Status status = channel->Start(*std::move(id)); !status.ok()) return status;
  return NcclReceiver{std::move(channel), std::move(endpoint)};
}

absl::StatusOr<std::unique_ptr<SendChannel>> ConnectNcclSender(const std::string& host, const std::string& endpoint,
                                                               absl::Duration timeout, const ChannelLimits& limits,
                                                               std::shared_ptr<DeviceRings> rings) {
  if (endpoint.size() <= kPortBytes + kNcclTokenBytes) {
    return absl::InvalidArgumentError("the endpoint of an NCCL channel has another length");
  }
  const int port = int(uint8_t(endpoint[0])) << 8 | int(uint8_t(endpoint[1]));
  const absl::Time deadline = absl::Now() + timeout;
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> ring = TakeRing(*rings, limits);
  if (!ring.ok()) return ring.status();
  NcclSlots slots(limits, *std::move(ring), std::move(rings));
  absl::StatusOr<Fd> socket = ConnectTcp(host, port, deadline);
  if (!socket.ok()) return socket.status();
  char welcome = 0;
  absl::Status met = SendAll(socket->get(), &endpoint[kPortBytes], kNcclTokenBytes, deadline);
  if (met.ok()) met = ReceiveAll(socket->get(), &welcome, 1, deadline);
  if (met.ok() && welcome != kNcclWelcome) met = absl::UnavailableError("something else answers at the endpoint");
  if (!met.ok()) return met;
  auto channel = std::make_unique<NcclSendChannel>(std::move(slots), *std::move(socket));
  if (absl::Status status = channel->Start(endpoint.substr(kPortBytes + kNcclTokenBytes)); !status.ok()) return status;
  return channel;
}

}  // namespace sluice::kvtransfer
