#include "tests/host_cuda/nccl/group.h"

#include <algorithm>
#include <utility>

#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::nccl {
namespace {

struct Entry {
  std::shared_ptr<Communicator> communicator;
  cudaStream_t stream = nullptr;
  Signature signature;
  std::vector<Transfer> transfers;  // of sends and receives
  std::function<Plan()> plan;       // of collectives
};

thread_local int depth = 0;
thread_local std::vector<Entry> entries;
thread_local std::vector<std::shared_ptr<Communicator>> starting;

Plan PlanOf(const std::vector<Transfer>& transfers) {
  Plan plan;
  plan.transfers = transfers;
  for (const Transfer& t : transfers) plan.touches.emplace_back(t.buffer, t.bytes);
  return plan;
}

ncclResult_t Launch(const Entry& entry) {
  const auto communicator = entry.communicator;
  if (DeviceOf(entry.stream) != communicator->device) {
    Report("NCCL: " + communicator->Name() + " is on device " + std::to_string(communicator->device) +
           ", the stream on device " + std::to_string(DeviceOf(entry.stream)));
    return ncclInvalidArgument;
  }
  auto plan = entry.plan ? entry.plan : [transfers = entry.transfers] { return PlanOf(transfers); };
  return communicator->Submit([communicator, entry, plan = std::move(plan)] {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(entry.stream, &status) != cudaSuccess) return ncclUnhandledCudaError;
    const auto make = status == cudaStreamCaptureStatusNone ? MakeOperation : MakeCaptured;
    const cudaError_t error = Enqueue(entry.stream, make(communicator, entry.signature, plan));
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  });
}

// The error, if any, before success; that something goes on, before success.
ncclResult_t Worse(ncclResult_t a, ncclResult_t b) {
  if (a != ncclSuccess && a != ncclInProgress) return a;
  if (b != ncclSuccess && b != ncclInProgress) return b;
  return a == ncclInProgress || b == ncclInProgress ? ncclInProgress : ncclSuccess;
}

}  // namespace

ncclResult_t GroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t GroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (const auto& communicator : std::exchange(starting, {})) {
    result = Worse(result, communicator->blocking ? communicator->WaitReady() : ncclInProgress);
  }
  for (const Entry& entry : std::exchange(entries, {})) result = Worse(result, Launch(entry));
  return result;
}

ncclResult_t AddTransfer(std::shared_ptr<Communicator> communicator, cudaStream_t stream, const Transfer& transfer) {
  GroupStart();
  auto same = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
    return !entry.plan && entry.communicator == communicator && entry.stream == stream;
  });
  if (same == entries.end()) {
    Entry entry;
    entry.communicator = std::move(communicator);
    entry.stream = stream;
    entry.signature = transfer.signature;
    entries.push_back(std::move(entry));
    same = std::prev(entries.end());
  }
  same->transfers.push_back(transfer);
  return GroupEnd();
}

ncclResult_t AddCollective(std::shared_ptr<Communicator> communicator, cudaStream_t stream, const Signature& signature,
                           std::function<Plan()> plan) {
  GroupStart();
  Entry entry;
  entry.communicator = std::move(communicator);
  entry.stream = stream;
  entry.signature = signature;
  entry.plan = std::move(plan);
  entries.push_back(std::move(entry));
  return GroupEnd();
}

ncclResult_t AddInit(std::shared_ptr<Communicator> communicator) {
  GroupStart();
  starting.push_back(std::move(communicator));
  return GroupEnd();
}

}  // namespace host_cuda::nccl
