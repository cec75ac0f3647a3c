#include "tests/host_cuda/nccl/plans.h"

#include <cstring>
#include <string>
#include <vector>

#include "tests/host_cuda/nccl/reduction.h"

namespace host_cuda::nccl {
namespace {

char* Chunk(const void* base, int n, size_t bytes) {
  return const_cast<char*>(static_cast<const char*>(base)) + static_cast<size_t>(n) * bytes;
}

}  // namespace

Plan ReducingPlan(const Communicator& comm, const Signature& signature, const Exchange& exchange, void* result,
                  const std::shared_ptr<const Factor>& factor) {
  const auto type = static_cast<ncclDataType_t>(signature.type);
  const size_t bytes = signature.count * SizeOf(type);
  const int me = comm.me.rank, ranks = comm.me.ranks;
  const bool receives = exchange.to < 0 || exchange.to == me;
  const size_t out_bytes = bytes * static_cast<size_t>(exchange.chunks ? ranks : 1);
  struct Buffers {
    std::vector<std::string> parts;  // what came, by rank
    std::string scaled;              // what goes out, if a factor changes it
  };
  auto buffers = std::make_shared<Buffers>();
  if (receives) buffers->parts.assign(static_cast<size_t>(ranks), std::string(bytes, '\0'));
  Plan plan;
  plan.holds = buffers;
  plan.touches.emplace_back(exchange.out, out_bytes);
  if (receives) plan.touches.emplace_back(result, bytes);
  const void* out = exchange.out;
  if (factor) {
    buffers->scaled.resize(out_bytes);
    out = buffers->scaled.data();
    if (factor->on_device != nullptr) plan.touches.emplace_back(factor->on_device, SizeOf(type));
    plan.start = [to = buffers->scaled.data(), from = exchange.out, count = out_bytes / SizeOf(type), type, factor] {
      Scale(to, from, count, type, factor->on_device != nullptr ? factor->on_device : factor->value);
    };
  }
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == me) continue;
    if (exchange.to < 0 || exchange.to == peer) {
      plan.transfers.push_back({true, peer, Chunk(out, exchange.chunks ? peer : 0, bytes), bytes, signature});
    }
    if (receives) {
      plan.transfers.push_back({false, peer, buffers->parts[static_cast<size_t>(peer)].data(), bytes, signature});
    }
  }
  if (!receives) return plan;
  plan.finish = [=, chunks = exchange.chunks] {
    std::vector<const void*> in;
    for (const std::string& part : buffers->parts) in.push_back(part.data());
    in[static_cast<size_t>(me)] = Chunk(out, chunks ? me : 0, bytes);
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

}  // namespace host_cuda::nccl
