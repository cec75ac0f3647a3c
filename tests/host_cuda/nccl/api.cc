// NCCL's C interface (2.28): communicators, groups, sends and receives, collectives. What isn't here doesn't link.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>

#include "tests/host_cuda/nccl/communicator.h"
#include "tests/host_cuda/nccl/group.h"
#include "tests/host_cuda/nccl/reduction.h"
#include "tests/host_cuda/runtime/injection.h"
#include "tests/host_cuda/runtime/report.h"

struct ncclComm {
  std::shared_ptr<host_cuda::nccl::Communicator> communicator;
};

namespace host_cuda::nccl {
namespace {

constexpr const char* kNames[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                  "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                  "ncclRemoteError",   "ncclInProgress"};
constexpr const char* kTexts[] = {"no error",
                                  "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                  "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                  "internal error - please report this issue to the NCCL developers",
                                  "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                  "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                  "remote process exited or there was a network error",
                                  "NCCL operation in progress"};

// Handles that are alive.
std::mutex& HandleMutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
std::map<ncclComm_t, std::shared_ptr<Communicator>>& Handles() {
  static auto& handles = *new std::map<ncclComm_t, std::shared_ptr<Communicator>>;
  return handles;
}

std::shared_ptr<Communicator> Find(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(HandleMutex());
  auto found = Handles().find(comm);
  return found == Handles().end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> Take(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(HandleMutex());
  auto found = Handles().find(comm);
  if (found == Handles().end()) return nullptr;
  auto communicator = found->second;
  Handles().erase(found);
  delete comm;
  return communicator;
}

// A failure on purpose (HOST_CUDA_FAIL).
std::optional<ncclResult_t> Injected(const char* call) {
  const auto fail = TheFailurePlan().Next(call);
  if (!fail) return std::nullopt;
  for (int i = 0; i < ncclNumResults; ++i) {
    if (*fail == kNames[i]) return static_cast<ncclResult_t>(i);
  }
  std::fprintf(stderr, "host_cuda: HOST_CUDA_FAIL: no NCCL result is called %s\n", fail->c_str());
  std::abort();
}

bool Blocking(const ncclConfig_t* config) {
  return config == nullptr || config->blocking != 0;
}

ncclResult_t Begin(ncclComm_t* out, bool blocking, std::function<bool(Membership*)> who) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  auto communicator = std::make_shared<Communicator>(device, blocking);
  *out = new ncclComm{communicator};
  {
    std::lock_guard<std::mutex> lock(HandleMutex());
    Handles()[*out] = communicator;
  }
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

char* Chunk(const void* base, int n, size_t bytes) {
  return const_cast<char*>(static_cast<const char*>(base)) + static_cast<size_t>(n) * bytes;
}

// Everybody sends `out` (or chunk p of it to rank p) to the ranks of `to`; those gather all ranks' into `parts`.
struct Exchange {
  const void* out = nullptr;
  bool chunks = false;
  int to = -1;  // -1: all
};

Plan ReducingPlan(const Communicator& comm, const Signature& signature, const Exchange& exchange, void* result) {
  const auto type = static_cast<ncclDataType_t>(signature.type);
  const size_t bytes = signature.count * SizeOf(type);
  const int me = comm.me.rank, ranks = comm.me.ranks;
  const bool receives = exchange.to < 0 || exchange.to == me;
  auto parts =
      std::make_shared<std::vector<std::string>>(static_cast<size_t>(receives ? ranks : 0), std::string(bytes, '\0'));
  Plan plan;
  plan.holds = parts;
  plan.touches.emplace_back(exchange.out, bytes * static_cast<size_t>(exchange.chunks ? ranks : 1));
  if (receives) plan.touches.emplace_back(result, bytes);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == me) continue;
    if (exchange.to < 0 || exchange.to == peer) {
      plan.transfers.push_back({true, peer, Chunk(exchange.out, exchange.chunks ? peer : 0, bytes), bytes, signature});
    }
    if (receives) plan.transfers.push_back({false, peer, (*parts)[static_cast<size_t>(peer)].data(), bytes, signature});
  }
  if (!receives) return plan;
  plan.finish = [=] {
    std::vector<const void*> in;
    for (int rank = 0; rank < ranks; ++rank) in.push_back((*parts)[static_cast<size_t>(rank)].data());
    in[static_cast<size_t>(me)] = Chunk(exchange.out, exchange.chunks ? me : 0, bytes);
    Reduce(result, in, signature.count, type, static_cast<ncclRedOp_t>(signature.op));
  };
  return plan;
}

Plan GatheringPlan(const Communicator& comm, const Signature& signature, const void* out, void* all) {
  const size_t bytes = signature.count * SizeOf(static_cast<ncclDataType_t>(signature.type));
  const int me = comm.me.rank;
  Plan plan;
  plan.touches = {{out, bytes}, {all, bytes * static_cast<size_t>(comm.me.ranks)}};
  for (int peer = 0; peer < comm.me.ranks; ++peer) {
    if (peer == me) continue;
    plan.transfers.push_back({true, peer, Chunk(out, 0, bytes), bytes, signature});
    plan.transfers.push_back({false, peer, Chunk(all, peer, bytes), bytes, signature});
  }
  plan.finish = [=] { std::memmove(Chunk(all, me, bytes), out, bytes); };
  return plan;
}

Plan BroadcastPlan(const Communicator& comm, const Signature& signature, const void* from, void* to) {
  const size_t bytes = signature.count * SizeOf(static_cast<ncclDataType_t>(signature.type));
  Plan plan;
  plan.touches = {{to, bytes}};
  if (comm.me.rank != signature.root) {
    plan.transfers.push_back({false, signature.root, Chunk(to, 0, bytes), bytes, signature});
    return plan;
  }
  plan.touches.emplace_back(from, bytes);
  for (int peer = 0; peer < comm.me.ranks; ++peer) {
    if (peer != comm.me.rank) plan.transfers.push_back({true, peer, Chunk(from, 0, bytes), bytes, signature});
  }
  plan.finish = [=] { std::memmove(to, from, bytes); };
  return plan;
}

using Planner = std::function<Plan(const Communicator&, const Signature&)>;

ncclResult_t Collective(const char* name, ncclComm_t handle, cudaStream_t stream, const Signature& signature,
                        Planner planner) {
  if (const auto failure = Injected(name)) return *failure;
  const auto communicator = Find(handle);
  if (!communicator || SizeOf(static_cast<ncclDataType_t>(signature.type)) == 0) return ncclInvalidArgument;
  if (const ncclResult_t error = communicator->Usable(name); error != ncclSuccess) return error;
  if (signature.root < 0 || signature.root >= communicator->me.ranks) return ncclInvalidArgument;
  return AddCollective(communicator, stream, signature,
                       [communicator, signature, planner] { return planner(*communicator, signature); });
}

ncclResult_t Reducing(const char* name, ncclComm_t handle, cudaStream_t stream, const Signature& signature,
                      const Exchange& exchange, void* result) {
  if (!CanReduce(static_cast<ncclDataType_t>(signature.type), static_cast<ncclRedOp_t>(signature.op)))
    return ncclInvalidArgument;
  return Collective(name, handle, stream, signature, [=](const Communicator& comm, const Signature& s) {
    return ReducingPlan(comm, s, exchange, result);
  });
}

ncclResult_t PointToPoint(const char* name, bool send, void* buffer, size_t count, ncclDataType_t type, int peer,
                          ncclComm_t handle, cudaStream_t stream) {
  if (const auto failure = Injected(name)) return *failure;
  const auto communicator = Find(handle);
  if (!communicator || SizeOf(type) == 0) return ncclInvalidArgument;
  if (const ncclResult_t error = communicator->Usable(name); error != ncclSuccess) return error;
  if (peer < 0 || peer >= communicator->me.ranks) return ncclInvalidArgument;
  const Signature signature{Call::kSendRecv, static_cast<uint32_t>(type), 0, 0, count};
  return AddTransfer(communicator, stream, {send, peer, static_cast<char*>(buffer), count * SizeOf(type), signature});
}

Signature Sign(Call call, ncclDataType_t type, size_t count, ncclRedOp_t op = ncclSum, int root = 0) {
  return {call, static_cast<uint32_t>(type), static_cast<uint32_t>(op), root, count};
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
  const auto communicator = Find(handle);
  if (!communicator) return "";
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
  return Init(comm, ranks, id, rank, Blocking(config));
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
  const auto parent = Find(handle);
  if (!parent) return ncclInvalidArgument;
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
  const auto communicator = Find(handle);
  if (!communicator) return ncclInvalidArgument;
  std::lock_guard<std::mutex> lock(communicator->mutex);
  *error = communicator->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const auto communicator = Find(handle);
  if (!communicator) return ncclInvalidArgument;
  return communicator->Finish(__func__);
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const auto communicator = Take(handle);
  if (!communicator) return ncclInvalidArgument;
  const ncclResult_t result = communicator->Finish(__func__);
  communicator->Close();
  return result;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const auto communicator = Take(handle);
  if (!communicator) return ncclInvalidArgument;
  communicator->Abort();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t handle, int* count) {
  const auto communicator = Find(handle);
  if (!communicator) return ncclInvalidArgument;
  std::lock_guard<std::mutex> lock(communicator->mutex);
  *count = communicator->me.ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t handle, int* rank) {
  const auto communicator = Find(handle);
  if (!communicator) return ncclInvalidArgument;
  std::lock_guard<std::mutex> lock(communicator->mutex);
  *rank = communicator->me.rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t handle, int* device) {
  const auto communicator = Find(handle);
  if (!communicator) return ncclInvalidArgument;
  *device = communicator->device;
  return ncclSuccess;
}

// Buffers need no registration; it changes nothing.
ncclResult_t ncclCommRegister(ncclComm_t handle, void*, size_t, void** registration) {
  if (!Find(handle)) return ncclInvalidArgument;
  *registration = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t handle, void*) {
  return Find(handle) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclMemAlloc(void** p, size_t bytes) {
  return cudaMalloc(p, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* p) {
  return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclGroupStart() {
  return GroupStart();
}

ncclResult_t ncclGroupEnd() {
  const auto failure = Injected(__func__);
  const ncclResult_t result = GroupEnd();
  return failure ? *failure : result;
}

ncclResult_t ncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return PointToPoint(__func__, true, const_cast<void*>(buffer), count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return PointToPoint(__func__, false, buffer, count, type, peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return Reducing(__func__, comm, stream, Sign(Call::kAllReduce, type, count, op), {in, false, -1}, out);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return Reducing(__func__, comm, stream, Sign(Call::kReduce, type, count, op, root), {in, false, root}, out);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return Reducing(__func__, comm, stream, Sign(Call::kReduceScatter, type, count, op), {in, true, -1}, out);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Collective(__func__, comm, stream, Sign(Call::kAllGather, type, count),
                    [=](const Communicator& c, const Signature& s) { return GatheringPlan(c, s, in, out); });
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Collective(__func__, comm, stream, Sign(Call::kBroadcast, type, count, ncclSum, root),
                    [=](const Communicator& c, const Signature& s) { return BroadcastPlan(c, s, in, out); });
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

}  // extern "C"
