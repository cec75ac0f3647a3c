// NCCL's C interface (2.28): communicators and memory; api_operations.cc has the rest. What isn't here doesn't link.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/host_cuda/nccl/communicator.h"
#include "tests/host_cuda/nccl/group.h"
#include "tests/host_cuda/nccl/handles.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::nccl {
namespace {

constexpr const char* kTexts[] = {"no error",
                                  "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                  "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                  "internal error - please report this issue to the NCCL developers",
                                  "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                  "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                  "remote process exited or there was a network error",
                                  "NCCL operation in progress"};

constexpr unsigned kConfigMagic = 0xcafebeef;

bool Sound(const ncclConfig_t* config) {
  if (config == nullptr || config->magic == kConfigMagic) return true;
  Report("NCCL: the ncclConfig_t was not made with NCCL_CONFIG_INITIALIZER");
  return false;
}

bool Blocking(const ncclConfig_t* config) {
  return config == nullptr || config->blocking != 0;
}

ncclResult_t Begin(ncclComm_t* out, bool blocking, std::function<bool(Membership*)> who) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  auto communicator = std::make_shared<Communicator>(device, blocking);
  *out = AddHandle(communicator);
  communicator->Start(std::move(who));
  return AddInit(communicator);
}

std::string IdText(const ncclUniqueId& id) {
  return {id.internal, strnlen(id.internal, sizeof id.internal)};
}

ncclResult_t Init(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank, bool blocking) {
  if (out == nullptr || ranks < 1 || rank < 0 || rank >= ranks || IdText(id).empty()) return ncclInvalidArgument;
  return Begin(out, blocking, [=, text = IdText(id)](Membership* me) {
    *me = {text, rank, ranks};
    return true;
  });
}

// Who is with us after a split: the ranks of our colour in the order of their keys.
bool AfterSplit(Communicator* parent, uint64_t number, int colour, int key, Membership* me) {
  std::vector<std::pair<int, int>> all;
  if (!parent->ExchangeSplit(number, colour, key, &all)) return false;
  const auto& own = all[static_cast<size_t>(parent->me.rank)];
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].first != colour) continue;
    ++me->ranks;
    const bool before = all[rank].second < own.second ||
                        (all[rank].second == own.second && rank < static_cast<size_t>(parent->me.rank));
    if (before) ++me->rank;
  }
  me->id = parent->me.id + "-" + std::to_string(number) + "-" + std::to_string(colour);
  return true;
}

}  // namespace
}  // namespace host_cuda::nccl

using namespace host_cuda::nccl;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result >= 0 && result < ncclNumResults ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t handle) {
  static thread_local std::string text;
  const auto communicator = FindHandle(handle);
  if (!communicator) {
    text = LastRemark();  // of any communicator of the process
    return text.c_str();
  }
  std::lock_guard<std::mutex> lock(communicator->mutex);
  text = communicator->last_error;
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const auto failure = Injected(__func__)) return *failure;
  std::memset(id, 0, sizeof *id);
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "%08x%08x%08x%08x", random(), random(), random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (const auto failure = Injected(__func__)) return *failure;
  return Sound(config) ? Init(comm, ranks, id, rank, Blocking(config)) : ncclInvalidArgument;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (const auto failure = Injected(__func__)) return *failure;
  return Init(comm, ranks, id, rank, /*blocking=*/true);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  if (const auto failure = Injected(__func__)) return *failure;
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  int before = 0;
  cudaGetDevice(&before);
  ncclGroupStart();
  for (int i = 0; i < devices; ++i) {
    if (cudaSetDevice(list != nullptr ? list[i] : i) == cudaSuccess) Init(&comms[i], devices, id, i, true);
  }
  const ncclResult_t result = ncclGroupEnd();
  cudaSetDevice(before);
  return result;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int colour, int key, ncclComm_t* out, ncclConfig_t* config) {
  if (const auto failure = Injected(__func__)) return *failure;
  *out = nullptr;
  const auto parent = FindHandle(handle);
  if (!parent || !Sound(config)) return ncclInvalidArgument;
  if (const ncclResult_t error = parent->Usable(__func__); error != ncclSuccess) return error;
  const uint64_t number = parent->NextSplit();
  if (colour == NCCL_SPLIT_NOCOLOR) {
    Membership nobody;
    return AfterSplit(parent.get(), number, colour, key, &nobody) ? ncclSuccess : ncclRemoteError;
  }
  const bool blocking = config != nullptr ? Blocking(config) : parent->blocking;
  return Begin(out, blocking, [=](Membership* me) { return AfterSplit(parent.get(), number, colour, key, me); });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const auto communicator = FindHandle(handle);
  if (!communicator) return ncclInvalidArgument;
  std::lock_guard<std::mutex> lock(communicator->mutex);
  *error = communicator->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (const auto failure = Injected(__func__)) return *failure;
  const auto communicator = FindHandle(handle);
  if (!communicator) return ncclInvalidArgument;
  return communicator->blocking ? communicator->Finish(__func__) : communicator->BeginFinish();
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (const auto failure = Injected(__func__)) return *failure;
  const auto communicator = TakeHandle(handle);
  if (!communicator) return ncclInvalidArgument;
  const ncclResult_t result = communicator->Finish(__func__);
  communicator->Close();
  return result;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const auto communicator = TakeHandle(handle);
  if (!communicator) return ncclInvalidArgument;
  communicator->Abort();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t handle, int* count) {
  const auto communicator = FindHandle(handle);
  if (!communicator) return ncclInvalidArgument;
  std::lock_guard<std::mutex> lock(communicator->mutex);
  *count = communicator->me.ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t handle, int* rank) {
  const auto communicator = FindHandle(handle);
  if (!communicator) return ncclInvalidArgument;
  std::lock_guard<std::mutex> lock(communicator->mutex);
  *rank = communicator->me.rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t handle, int* device) {
  const auto communicator = FindHandle(handle);
  if (!communicator) return ncclInvalidArgument;
  *device = communicator->device;
  return ncclSuccess;
}

// Buffers need no registration; it changes nothing.
ncclResult_t ncclCommRegister(ncclComm_t handle, void*, size_t, void** registration) {
  if (!FindHandle(handle)) return ncclInvalidArgument;
  *registration = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t handle, void*) {
  return FindHandle(handle) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclMemAlloc(void** p, size_t bytes) {
  return cudaMalloc(p, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* p) {
  return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

}  // extern "C"
