// What one NCCL operation is, as far as all ranks have to agree on it, and how it is called in messages.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>

namespace host_cuda::nccl {

enum class Call : uint32_t { kSendRecv, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };

// As Signature::op: a sum whose values each rank multiplies with a factor of its own.
inline constexpr uint32_t kScaledSum = ncclNumOps;

struct Signature {
  Call call = Call::kSendRecv;
  uint32_t type = 0;
  uint32_t op = 0;     // of a reduction
  int32_t root = 0;    // of kReduce and kBroadcast
  uint64_t count = 0;  // elements
  bool operator==(const Signature&) const = default;
};

// Bytes of an element; 0: no such type.
size_t SizeOf(ncclDataType_t type);

// "ncclAllReduce of 100 float32 (sum)"
std::string Text(const Signature& signature);

}  // namespace host_cuda::nccl
