#include "kernels/cuda/rows/embed.h"

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

TEST(Embed, TakesTheTokensRowsOfEitherTable) {
  SLUICE_NEEDS_DEVICE();
  constexpr int kVocab = 11, kTableStride = 304, kStride = 320;
  for (const int width : {1, 37, 300}) {
    Numbers numbers{uint64_t(width)};
    const std::vector<float> f32 = numbers.Floats(kVocab * kTableStride);
    const std::vector<__nv_bfloat16> bf16 = numbers.Bf16(kVocab * kTableStride);
    const std::vector<int32_t> tokens = {10, 0, 3, 3};
    DeviceArray<float> f32_table(f32), x(std::vector<float>(tokens.size() * kStride, 77));
    DeviceArray<__nv_bfloat16> bf16_table(bf16);
    DeviceArray<int32_t> token_array(tokens);
    EmbedArgs args{.tokens = token_array.data(),
                   .table_stride = kTableStride,
                   .x = x.data(),
                   .x_stride = kStride,
                   .rows = int(tokens.size()),
                   .width = width,
                   .scale = 1.5f};
    for (const bool wide : {false, true}) {
      args.f32_table = wide ? f32_table.data() : nullptr;
      args.bf16_table = wide ? nullptr : bf16_table.data();
      Check(Embed(args, nullptr));
      const std::vector<float> got = x.Read();
      for (size_t row = 0; row < tokens.size(); ++row) {
        for (int i = 0; i < kStride; ++i) {
          const size_t at = size_t(tokens[row] * kTableStride + i);
          const float want = i >= width ? 77 : 1.5f * (wide ? f32[at] : __bfloat162float(bf16[at]));
          ASSERT_EQ(got[row * kStride + size_t(i)], want) << "row " << row << ", element " << i;
        }
      }
    }
  }
}

TEST(Embed, RefusesTwoTablesOrNone) {
  SLUICE_NEEDS_DEVICE();
  EXPECT_EQ(Embed({.rows = 1, .width = 4}, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace sluice::kernels::cuda
