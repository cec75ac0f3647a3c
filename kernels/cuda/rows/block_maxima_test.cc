#include "kernels/cuda/rows/block_maxima.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

TEST(BlockMaxima, AreTheLargestOfEachBlockAndOfNumbersOnly) {
  SLUICE_NEEDS_DEVICE();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int width : {1, 63, 64, 65, 1000}) {
    const int rows = 3, blocks = (width + 63) / 64, stride = width + 5;
    Numbers numbers{uint64_t(width)};
    std::vector<float> x = numbers.Floats(size_t(rows * stride));
    for (float& value : x) value = numbers.Below(9) == 0 ? NAN : numbers.Below(9) == 0 ? -kInfinity : value;
    std::fill_n(x.begin(), std::min(width, 64), NAN);
    DeviceArray<float> in(x), out(std::vector<float>(size_t(rows * (blocks + 1)), 77));
    Check(BlockMaxima({.x = in.data(),
                       .x_stride = stride,
                       .maxima = out.data(),
                       .maxima_stride = blocks + 1,
                       .rows = rows,
                       .width = width},
                      nullptr));
    const std::vector<float> got = out.Read();
    for (int row = 0; row < rows; ++row) {
      for (int block = 0; block <= blocks; ++block) {
        float want = block < blocks ? -kInfinity : 77;
        for (int i = block * 64; i < std::min(width, block * 64 + 64); ++i) {
          const float value = x[size_t(row * stride + i)];
          if (value > want) want = value;
        }
        EXPECT_EQ(got[size_t(row * (blocks + 1) + block)], want) << width << ", row " << row << ", block " << block;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
