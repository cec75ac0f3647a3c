// One NCCL operation on a device: transfers with other ranks, then what is made of what came.
//
// A transfer is a strict rendezvous: the sender hands over nothing until the receiver has come and said what it
// expects; the two must agree on call, type, count, reduction and root. Operations of one communicator run one at a
// time, in the order of their launches, whatever their streams.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/host_cuda/nccl/communicator.h"
#include "tests/host_cuda/runtime/device_work.h"

namespace host_cuda::nccl {

struct Transfer {
  bool send = false;
  int peer = 0;
  char* buffer = nullptr;  // of `bytes`; device memory, or what the plan holds
  size_t bytes = 0;
  Signature signature;
};

// What an operation does; each replay of a graph makes one anew.
struct Plan {
  std::function<void()> start;  // when it begins, before the first transfer
  std::vector<Transfer> transfers;
  std::function<void()> finish;                         // after all transfers
  std::shared_ptr<void> holds;                          // buffers of its own
  std::vector<std::pair<const void*, size_t>> touches;  // device memory, checked when it begins
};

// Announces it to the ranks it concerns and makes the work for its stream.
DeviceWork MakeOperation(std::shared_ptr<Communicator> communicator, Signature signature, std::function<Plan()> plan);

// For a stream that captures: announces nothing now, but an operation of its own at every launch of the graph.
DeviceWork MakeCaptured(std::shared_ptr<Communicator> communicator, Signature signature, std::function<Plan()> plan);

}  // namespace host_cuda::nccl
