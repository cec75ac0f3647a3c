#include "tests/host_cuda/nccl/reduction.h"

#include <gtest/gtest.h>

#include "tests/host_cuda/nccl/signature.h"

namespace host_cuda::nccl {
namespace {

template <class T>
T Once(ncclDataType_t type, ncclRedOp_t op, std::vector<T> ranks) {
  std::vector<const void*> in;
  for (const T& x : ranks) in.push_back(&x);
  T out{};
  EXPECT_TRUE(CanReduce(type, op));
  Reduce(&out, in, 1, type, op);
  return out;
}

TEST(Reduction, EveryOperation) {
  EXPECT_EQ(Once<int32_t>(ncclInt32, ncclSum, {3, -5, 4}), 2);
  EXPECT_EQ(Once<int32_t>(ncclInt32, ncclProd, {3, -5, 4}), -60);
  EXPECT_EQ(Once<int32_t>(ncclInt32, ncclMax, {3, -5, 4}), 4);
  EXPECT_EQ(Once<int32_t>(ncclInt32, ncclMin, {3, -5, 4}), -5);
  EXPECT_EQ(Once<float>(ncclFloat32, ncclAvg, {3, 5, 4}), 4.f);
  EXPECT_EQ(Once<uint8_t>(ncclUint8, ncclMax, {3, 200, 4}), 200);
  EXPECT_EQ(Once<double>(ncclFloat64, ncclSum, {0.5, 0.25}), 0.75);
}

TEST(Reduction, GoesInTheOrderOfTheRanks) {
  EXPECT_EQ(Once<float>(ncclFloat32, ncclSum, {1e8f, -1e8f, 1.f}), 1.f);
  EXPECT_EQ(Once<float>(ncclFloat32, ncclSum, {1.f, 1e8f, -1e8f}), 0.f);
}

TEST(Reduction, Bf16IsRoundedOnce) {
  const auto b = [](float x) { return __float2bfloat16(x); };
  // Rounded after each sum it would stay 256: 1 is half of the distance to the next bf16.
  EXPECT_EQ(__bfloat162float(Once<__nv_bfloat16>(ncclBfloat16, ncclSum, {b(256), b(1), b(1)})), 258.f);
}

TEST(Reduction, RefusesWhatItDoesNotKnow) {
  EXPECT_FALSE(CanReduce(ncclFloat8e4m3, ncclSum));
  EXPECT_FALSE(CanReduce(ncclFloat32, static_cast<ncclRedOp_t>(kScaledSum + 1)));
}

TEST(Reduction, ValuesAreScaledInTheirType) {
  const int8_t bytes[3] = {3, -5, 4}, by = 3;
  int8_t out[3];
  Scale(out, bytes, 3, ncclInt8, &by);
  EXPECT_EQ(out[1], -15);
  const __nv_bfloat16 value = __float2bfloat16(3.f), half = __float2bfloat16(0.5f);
  __nv_bfloat16 scaled;
  Scale(&scaled, &value, 1, ncclBfloat16, &half);
  EXPECT_EQ(__bfloat162float(scaled), 1.5f);
}

}  // namespace
}  // namespace host_cuda::nccl
