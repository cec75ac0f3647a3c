// A DevicePipe over NCCL: a communicator of two ranks, the receiver being rank 0, and a stream of its own.
//
// Its thread does everything: it meets the peer under a deadline, issues what was queued at once and in order, and
// watches what is under way. A peer that is lost, an error of NCCL's, or bytes that make no progress in time end in an
// abort of the communicator, which takes the operations off the stream; nothing is reused, a new pipe has a new id.
//
// Limits: a receive that waits for its bytes holds a block of the GPU (kMostBlocks of them). NCCL's kernels of several
// pipes run beside each other, as each has its own stream; the GPU has to have room for all of them, so their number is
// bounded by who makes them. Nothing that waits for the whole device may run meanwhile (cudaMalloc, cudaFree).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/backend/device.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/device_links.h"

namespace sluice::kernels::cuda {

// gpu, nccl: outlive the pipe.
absl::StatusOr<std::unique_ptr<DevicePipe>> NewNcclPipe(const Device& gpu, const NcclLibrary& nccl,
                                                        DevicePipeOptions options);

}  // namespace sluice::kernels::cuda
