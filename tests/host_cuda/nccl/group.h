// Calls between ncclGroupStart and ncclGroupEnd, per thread; a call outside of a group is a group of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/host_cuda/nccl/communicator.h"
#include "tests/host_cuda/nccl/operation.h"

namespace host_cuda::nccl {

ncclResult_t GroupStart();
ncclResult_t GroupEnd();

// Sends and receives of one communicator and stream in one group go on at the same time.
ncclResult_t AddTransfer(std::shared_ptr<Communicator> communicator, cudaStream_t stream, const Transfer& transfer);
ncclResult_t AddCollective(std::shared_ptr<Communicator> communicator, cudaStream_t stream, const Signature& signature,
                           std::function<Plan()> plan);
// A communicator that comes up; the group's end waits for it, unless it is non-blocking.
ncclResult_t AddInit(std::shared_ptr<Communicator> communicator);

}  // namespace host_cuda::nccl
