// A Channel between GPUs of one host, or between two processes on one GPU: the receiver's ring of `window` slots is
// device memory of its own, which the sender opens. So the sender's kernel gathers a piece straight into the receiver's
// memory, with its checksum, and the receiver's kernel scatters it from there: bytes cross the link between the GPUs
// once and never touch the host.
//
// Everything else is as in shm_channel.h: socket, token, the counter of what was sent. The memory's handle is in the
// segment that is handed over. No CUDA here: kernels/device_links.h does it.
//
// Limits:
//  - The sender's copy has completed, on its device's word, before Send(); that makes it visible to whatever the
//    receiver starts afterwards.
//  - A ring goes back to its DeviceRings, which keep it away from others until the sender can't write any more.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device_links.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/device_rings.h"

namespace sluice::kvtransfer {

struct CudaIpcReceiver {
  std::unique_ptr<ReceiveChannel> channel;
  std::string endpoint;  // opaque bytes for ConnectCudaIpcSender
};

// Returns at once; the sender may connect later.
absl::StatusOr<CudaIpcReceiver> NewCudaIpcReceiver(const ChannelLimits& limits, std::shared_ptr<DeviceRings> rings,
                                                   ArrivalCallback on_arrival);

// As ConnectShmSender, and FAILED_PRECONDITION where the device can't reach the receiver's memory.
absl::StatusOr<std::unique_ptr<SendChannel>> ConnectCudaIpcSender(const std::string& endpoint, absl::Duration timeout,
                                                                  kernels::DeviceLinks& device);

}  // namespace sluice::kvtransfer
