#include "tests/host_cuda/nccl/handles.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/host_cuda/runtime/injection.h"

struct ncclComm {};

namespace host_cuda::nccl {
namespace {

constexpr const char* kNames[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                  "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                  "ncclRemoteError",   "ncclInProgress"};

struct Handles {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<Communicator>> alive;
};

// Never destroyed: communicators' threads may outlive main.
Handles& TheHandles() {
  static auto& handles = *new Handles;
  return handles;
}

}  // namespace

ncclComm_t AddHandle(std::shared_ptr<Communicator> communicator) {
  std::lock_guard<std::mutex> lock(TheHandles().mutex);
  const ncclComm_t comm = new ncclComm;
  TheHandles().alive[comm] = std::move(communicator);
  return comm;
}

std::shared_ptr<Communicator> FindHandle(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(TheHandles().mutex);
  auto found = TheHandles().alive.find(comm);
  return found == TheHandles().alive.end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> TakeHandle(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(TheHandles().mutex);
  auto found = TheHandles().alive.find(comm);
  if (found == TheHandles().alive.end()) return nullptr;
  auto communicator = std::move(found->second);
  TheHandles().alive.erase(found);
  delete comm;
  return communicator;
}

ncclResult_t ResultNamed(const std::string& name) {
  for (int i = 0; i < ncclNumResults; ++i) {
    if (name == kNames[i]) return static_cast<ncclResult_t>(i);
  }
  std::fprintf(stderr, "host_cuda: HOST_CUDA_FAIL: no NCCL result is called %s\n", name.c_str());
  std::abort();
}

std::optional<ncclResult_t> Injected(const char* call) {
  const auto fail = FailsOnPurpose(call);
  if (!fail) return std::nullopt;
  return ResultNamed(*fail);
}

}  // namespace host_cuda::nccl
