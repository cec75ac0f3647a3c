#include "tests/host_cuda/nccl/reduction.h"

#include <cstdint>

#include "tests/host_cuda/nccl/signature.h"

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

}  // namespace

bool CanReduce(ncclDataType_t type, ncclRedOp_t op) {
  return type >= 0 && type <= ncclBfloat16 && op >= 0 && static_cast<uint32_t>(op) <= kScaledSum;
}

namespace {

// What `visit` gets: a value of the type in memory, one of the type to calculate in, and how to go from one to the
// other.
template <class Visit>
void WithType(ncclDataType_t type, Visit visit) {
  const auto same = [](auto x) { return x; };
  switch (type) {
    case ncclInt8:
      return visit(int8_t{}, int8_t{}, same, same);
    case ncclUint8:
      return visit(uint8_t{}, uint8_t{}, same, same);
    case ncclInt32:
      return visit(int32_t{}, int32_t{}, same, same);
    case ncclUint32:
      return visit(uint32_t{}, uint32_t{}, same, same);
    case ncclInt64:
      return visit(int64_t{}, int64_t{}, same, same);
    case ncclUint64:
      return visit(uint64_t{}, uint64_t{}, same, same);
    case ncclFloat32:
      return visit(float{}, float{}, same, same);
    case ncclFloat64:
      return visit(double{}, double{}, same, same);
    case ncclFloat16:
      return visit(
          __half{}, float{}, [](__half x) { return __half2float(x); }, [](float x) { return __float2half(x); });
    case ncclBfloat16:
      return visit(
          __nv_bfloat16{}, float{}, [](__nv_bfloat16 x) { return __bfloat162float(x); },
          [](float x) { return __float2bfloat16(x); });
    default:
      return;
  }
}

}  // namespace

void Reduce(void* out, const std::vector<const void*>& in, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  WithType(type, [&](auto stored, auto wide, auto load, auto store) {
    ReduceAs<decltype(stored), decltype(wide)>(out, in, count, op, load, store);
  });
}

void Scale(void* out, const void* in, size_t count, ncclDataType_t type, const void* factor) {
  WithType(type, [&](auto stored, auto wide, auto load, auto store) {
    using T = decltype(stored);
    using Wide = decltype(wide);
    const Wide by = load(*static_cast<const T*>(factor));
    for (size_t i = 0; i < count; ++i) {
      static_cast<T*>(out)[i] = store(static_cast<Wide>(load(static_cast<const T*>(in)[i]) * by));
    }
  });
}

}  // namespace host_cuda::nccl
