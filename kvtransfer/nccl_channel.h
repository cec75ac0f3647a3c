// A Channel between two GPUs over NCCL, within a host or between hosts: a kernels::DevicePipe per pair. The sender's
// kernel gathers a piece into a slot of its own device memory, with its checksum, NCCL brings it to the receiver's
// slot, and the receiver's kernel scatters it from there.
//
// A TCP connection stands beside it, on a port of its own: its token shows the receiver the right peer, which says when
// NCCL can begin; later its end tells at once that the other process is gone, which NCCL often does not.
//
// Promises: receives are posted, and sends issued, in the order of the sequences, by the pipe's one thread and stream.
// A channel that failed is aborted as a whole, so that nothing writes to its slots afterwards; the next one has a new
// id.
//
// Limits:
//  - The ends don't tell each other sizes: both must be those of the grant.
//  - A sender that closes takes back what has not arrived.
//  - A sender's Buffer() waits a moment for the end of what it sent a window ago.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/device_rings.h"

namespace sluice::kvtransfer {

struct NcclReceiver {
  std::unique_ptr<ReceiveChannel> channel;
  std::string endpoint;  // opaque bytes for ConnectNcclSender: port, token, NCCL's id
};

// Listens on that address. Returns at once; the sender may connect later. FAILED_PRECONDITION where NCCL can't be had,
// or all rings are taken.
absl::StatusOr<NcclReceiver> NewNcclReceiver(const std::string& host, const ChannelLimits& limits,
                                             std::shared_ptr<DeviceRings> rings, ArrivalCallback on_arrival);

// The channel is ready() once NCCL has met. timeout: for the connection. Errors as ConnectTcpSender's, and as above.
absl::StatusOr<std::unique_ptr<SendChannel>> ConnectNcclSender(const std::string& host, const std::string& endpoint,
                                                               absl::Duration timeout, const ChannelLimits& limits,
                                                               std::shared_ptr<DeviceRings> rings);

}  // namespace sluice::kvtransfer
