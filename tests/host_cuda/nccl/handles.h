// Communicators by their handles, and failures on purpose: what every function of the C interface begins with.
#pragma once

#include <nccl.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/host_cuda/nccl/communicator.h"

namespace host_cuda::nccl {

ncclComm_t AddHandle(std::shared_ptr<Communicator> communicator);
std::shared_ptr<Communicator> FindHandle(ncclComm_t comm);  // nullptr: no such handle, or it is gone
std::shared_ptr<Communicator> TakeHandle(ncclComm_t comm);  // and its life ends

ncclResult_t ResultNamed(const std::string& name);  // as HOST_CUDA_FAIL spells it; else the process ends

// HOST_CUDA_FAIL asks that this call fails.
std::optional<ncclResult_t> Injected(const char* call);

}  // namespace host_cuda::nccl
