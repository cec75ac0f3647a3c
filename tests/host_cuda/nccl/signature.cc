#include "tests/host_cuda/nccl/signature.h"

namespace host_cuda::nccl {
namespace {

constexpr const char* kCalls[] = {"ncclSend/ncclRecv", "ncclAllReduce", "ncclReduce",
                                  "ncclBroadcast",     "ncclAllGather", "ncclReduceScatter"};
constexpr const char* kTypes[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                  "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr const char* kOps[] = {"sum", "product", "max", "min", "average", "scaled sum"};

}  // namespace

size_t SizeOf(ncclDataType_t type) {
  return type >= 0 && type < ncclNumTypes ? kSizes[type] : 0;
}

std::string Text(const Signature& s) {
  std::string text = kCalls[static_cast<uint32_t>(s.call)];
  text += " of " + std::to_string(s.count) + " " + (s.type < ncclNumTypes ? kTypes[s.type] : "unknown");
  const bool reduces = s.call == Call::kAllReduce || s.call == Call::kReduce || s.call == Call::kReduceScatter;
  if (reduces && s.op <= kScaledSum) text += std::string(" (") + kOps[s.op] + ")";
  if (s.call == Call::kReduce || s.call == Call::kBroadcast) text += ", root " + std::to_string(s.root);
  return text;
}

}  // namespace host_cuda::nccl
