// The collectives as transfers between ranks, and what each rank makes of what came.
#pragma once

#include <memory>

#include "tests/host_cuda/nccl/communicator.h"
#include "tests/host_cuda/nccl/operation.h"

namespace host_cuda::nccl {

// Everybody sends `out` (or chunk p of it to rank p) to the ranks of `to`; those gather all ranks' parts and reduce
// them.
struct Exchange {
  const void* out = nullptr;
  bool chunks = false;
  int to = -1;  // -1: all
};

// A factor of ncclRedOpCreatePreMulSum, which this rank applies to its own values before it sends them. On the device
// it is read when the operation begins.
struct Factor {
  uint32_t type = 0;  // ncclDataType_t, that of the values
  alignas(8) char value[8] = {};
  const void* on_device = nullptr;  // instead of value
};

Plan ReducingPlan(const Communicator& comm, const Signature& signature, const Exchange& exchange, void* result,
                  const std::shared_ptr<const Factor>& factor);
Plan GatheringPlan(const Communicator& comm, const Signature& signature, const void* out, void* all);
Plan BroadcastPlan(const Communicator& comm, const Signature& signature, const void* from, void* to);

}  // namespace host_cuda::nccl
