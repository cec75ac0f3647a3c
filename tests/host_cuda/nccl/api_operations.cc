// NCCL's C interface: groups, sends and receives, collectives, reduction operators.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>

#include "tests/host_cuda/nccl/group.h"
#include "tests/host_cuda/nccl/handles.h"
#include "tests/host_cuda/nccl/plans.h"
#include "tests/host_cuda/nccl/reduction.h"

namespace host_cuda::nccl {
namespace {

using Planner = std::function<Plan(const Communicator&, const Signature&)>;

ncclResult_t Collective(const char* name, ncclComm_t handle, cudaStream_t stream, const Signature& signature,
                        Planner planner) {
  if (const auto failure = Injected(name)) return *failure;
  const auto communicator = FindHandle(handle);
  if (!communicator || SizeOf(static_cast<ncclDataType_t>(signature.type)) == 0) return ncclInvalidArgument;
  if (const ncclResult_t error = communicator->Usable(name); error != ncclSuccess) return error;
  if (signature.root < 0 || signature.root >= communicator->me.ranks) return ncclInvalidArgument;
  return AddCollective(communicator, stream, signature,
                       [communicator, signature, planner] { return planner(*communicator, signature); });
}

ncclResult_t Reducing(const char* name, ncclComm_t handle, cudaStream_t stream, Signature signature,
                      const Exchange& exchange, void* result) {
  const auto type = static_cast<ncclDataType_t>(signature.type);
  std::shared_ptr<const Factor> factor;
  if (signature.op >= ncclNumOps) {  // one that ncclRedOpCreatePreMulSum made
    const auto communicator = FindHandle(handle);
    if (communicator) factor = communicator->FindFactor(signature.op);
    if (!factor || factor->type != signature.type) return ncclInvalidArgument;
    signature.op = kScaledSum;
  }
  if (!CanReduce(type, static_cast<ncclRedOp_t>(signature.op))) return ncclInvalidArgument;
  return Collective(name, handle, stream, signature, [=](const Communicator& comm, const Signature& s) {
    return ReducingPlan(comm, s, exchange, result, factor);
  });
}

ncclResult_t PointToPoint(const char* name, bool send, void* buffer, size_t count, ncclDataType_t type, int peer,
                          ncclComm_t handle, cudaStream_t stream) {
  if (const auto failure = Injected(name)) return *failure;
  const auto communicator = FindHandle(handle);
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

ncclResult_t ncclGroupStart() {
  return GroupStart();
}

ncclResult_t ncclGroupEnd() {
  const auto failure = Injected(__func__);
  const ncclResult_t result = GroupEnd();
  return failure ? *failure : result;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t handle) {
  if (const auto failure = Injected(__func__)) return *failure;
  const auto communicator = FindHandle(handle);
  if (!communicator || scalar == nullptr || !CanReduce(type, ncclSum)) return ncclInvalidArgument;
  auto factor = std::make_shared<Factor>();
  factor->type = static_cast<uint32_t>(type);
  if (residence == ncclScalarHostImmediate) {
    std::memcpy(factor->value, scalar, SizeOf(type));
  } else {
    factor->on_device = scalar;
  }
  *op = static_cast<ncclRedOp_t>(communicator->AddFactor(std::move(factor)));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  const auto communicator = FindHandle(handle);
  if (!communicator || op < ncclNumOps) return ncclInvalidArgument;
  return communicator->RemoveFactor(static_cast<uint32_t>(op)) ? ncclSuccess : ncclInvalidArgument;
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
