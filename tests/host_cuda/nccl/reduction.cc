#include "tests/host_cuda/nccl/reduction.h"

#include <cstdint>

namespace host_cuda::nccl {
namespace {

template <class T>
T Combine(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return b > a ? b : a;
    case ncclMin:
      return b < a ? b : a;
    default:
      return static_cast<T>(a + b);
  }
}

// T as it lies in memory, Wide as it is added up.
template <class T, class Wide, class Load, class Store>
void ReduceAs(void* out, const std::vector<const void*>& in, size_t count, ncclRedOp_t op, Load load, Store store) {
  for (size_t i = 0; i < count; ++i) {
    Wide sum = load(static_cast<const T*>(in[0])[i]);
    for (size_t rank = 1; rank < in.size(); ++rank)
      sum = Combine<Wide>(op, sum, load(static_cast<const T*>(in[rank])[i]));
    if (op == ncclAvg) sum = static_cast<Wide>(sum / static_cast<Wide>(in.size()));
    static_cast<T*>(out)[i] = store(sum);
  }
}

template <class T>
void ReducePlain(void* out, const std::vector<const void*>& in, size_t count, ncclRedOp_t op) {
  const auto same = [](T x) { return x; };
  ReduceAs<T, T>(out, in, count, op, same, same);
}

}  // namespace

bool CanReduce(ncclDataType_t type, ncclRedOp_t op) {
  return type >= 0 && type <= ncclBfloat16 && op >= 0 && op < ncclNumOps;
}

void Reduce(void* out, const std::vector<const void*>& in, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8:
      return ReducePlain<int8_t>(out, in, count, op);
    case ncclUint8:
      return ReducePlain<uint8_t>(out, in, count, op);
    case ncclInt32:
      return ReducePlain<int32_t>(out, in, count, op);
    case ncclUint32:
      return ReducePlain<uint32_t>(out, in, count, op);
    case ncclInt64:
      return ReducePlain<int64_t>(out, in, count, op);
    case ncclUint64:
      return ReducePlain<uint64_t>(out, in, count, op);
    case ncclFloat32:
      return ReducePlain<float>(out, in, count, op);
    case ncclFloat64:
      return ReducePlain<double>(out, in, count, op);
    case ncclFloat16:
      return ReduceAs<__half, float>(
          out, in, count, op, [](__half x) { return __half2float(x); }, [](float x) { return __float2half(x); });
    case ncclBfloat16:
      return ReduceAs<__nv_bfloat16, float>(
          out, in, count, op, [](__nv_bfloat16 x) { return __bfloat162float(x); },
          [](float x) { return __float2bfloat16(x); });
    default:
      return;
  }
}

}  // namespace host_cuda::nccl
