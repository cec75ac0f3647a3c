#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "kernels/cuda/gemm/int8_layout.h"
#include "kernels/cuda/testing/products.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cuda {
namespace {

// What a matrix becomes, and how far that is from it.
struct Packed {
  std::vector<std::vector<unsigned char>> parts;

  explicit Packed(const Problem& p) {
    for (size_t i = 0; i < p.n.size(); ++i) {
      parts.emplace_back(Int8Bytes(p.n[i], p.k));
      const size_t tile_row = size_t(p.k / kInt8TileColumns) * kInt8TileBytes;
      for (int first = 0; first < p.n[i]; first += kInt8TileRows) {
        std::vector<float> rows(size_t(kInt8TileRows) * size_t(p.k));
        for (int r = 0; r < kInt8TileRows && first + r < p.n[i]; ++r) {
          for (int k = 0; k < p.k; ++k) {
            rows[size_t(r * p.k + k)] = __bfloat162float(p.w[i][size_t(first + r) * size_t(p.k) + size_t(k)]);
          }
        }
        PackInt8Rows(rows.data(), p.k, &parts[i][size_t(first / kInt8TileRows) * tile_row]);
      }
    }
  }
};

// The problem with the weights that the packed ones stand for.
Problem Rounded(const Problem& p, const Packed& packed) {
  Problem rounded = p;
  for (size_t i = 0; i < p.n.size(); ++i) {
    for (int row = 0; row < p.n[i]; ++row) {
      for (int k = 0; k < p.k; ++k) {
        rounded.w[i][size_t(row) * size_t(p.k) + size_t(k)] =
            __ushort_as_bfloat16(Int8Element(packed.parts[i].data(), p.k, row, k));
      }
    }
  }
  return rounded;
}

std::vector<std::vector<float>> Compute(const Problem& p, int first, int count, bool workspace = true) {
  return RunProblem(p, first, count, workspace ? size_t(4) << 20 : 0,
                    [](const GemmArgs& args) { Check(Gemm(args, nullptr)); });
}

std::vector<std::vector<float>> ComputePacked(const Problem& p, const Packed& packed, int first, int count,
                                              bool workspace = true) {
  std::vector<std::unique_ptr<DeviceArray<unsigned char>>> parts;
  for (const auto& part : packed.parts) parts.push_back(std::make_unique<DeviceArray<unsigned char>>(part));
  return RunProblem(p, first, count, workspace ? size_t(4) << 20 : 0, [&](GemmArgs args) {
    for (size_t i = 0; i < parts.size(); ++i) {
      args.parts[i].w = nullptr;
      args.parts[i].int8 = parts[i]->data();
    }
    Check(Gemm(args, nullptr));
  });
}

class GemmInt8Shapes : public testing::TestWithParam<Problem> {};

TEST_P(GemmInt8Shapes, AgreesWithTheDefinitionAndWithBf16AndARowWithItself) {
  SLUICE_NEEDS_DEVICE();
  const Packed packed(GetParam());
  const Problem p = Rounded(GetParam(), packed);
  const auto got = ComputePacked(p, packed, 0, p.m);
  ExpectAll(p, got);
  const auto bf16 = Compute(p, 0, p.m);
  for (int row = 0; row < p.m; ++row) ExpectRow(p, bf16, row, got, row, "as bf16 of the same values");
  ExpectRow(p, got, p.m - 1, ComputePacked(p, packed, p.m - 1, 1), 0, "alone");
  ExpectRow(p, got, p.m - 1, ComputePacked(p, packed, p.m - 1, 1, /*workspace=*/false), 0, "alone in one block");
  const int some = std::min(p.m, 20);
  ExpectRow(p, got, 0, ComputePacked(p, packed, 0, some), 0, "with a few others");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GemmInt8Shapes,
    testing::Values(Problem(1, 64, {1}, GemmOutput::kF32), Problem(3, 128, {70}, GemmOutput::kBf16, true),
                    Problem(17, 64, {64, 20, 33}, GemmOutput::kBf16, true), Problem(65, 192, {33}, GemmOutput::kAdd),
                    Problem(70, 64, {30, 30}, GemmOutput::kGatedSilu),
                    Problem(5, 64, {130, 130}, GemmOutput::kGatedGelu), Problem(2, 2176, {9}, GemmOutput::kF32),
                    Problem(66, 2176, {9}, GemmOutput::kF32, true), Problem(18, 2048, {5, 5}, GemmOutput::kGatedSilu),
                    Problem(130, 64, {129}, GemmOutput::kF32), Problem(150, 320, {150}, GemmOutput::kBf16)),
    [](const auto& shape) {
      return "Rows" + std::to_string(shape.param.m) + "Depth" + std::to_string(shape.param.k) + "Parts" +
             std::to_string(shape.param.n.size()) + "Output" + std::to_string(int(shape.param.output));
    });

// Half a step of its 64, and the rounding of a product to bf16.
TEST(Int8Layout, AnElementIsNearWhatItWas) {
  const Problem p(1, 192, {35}, GemmOutput::kF32);
  const Packed packed(p);
  double squares = 0, errors = 0;
  for (int row = 0; row < p.n[0]; ++row) {
    for (int group = 0; group < p.k; group += kInt8TileColumns) {
      float largest = 0;
      for (int k = group; k < group + kInt8TileColumns; ++k) {
        largest = std::max(largest, std::abs(__bfloat162float(p.w[0][size_t(row * p.k + k)])));
      }
      for (int k = group; k < group + kInt8TileColumns; ++k) {
        const double was = ToDouble(p.w[0][size_t(row * p.k + k)]);
        const double error = BF16ToF32(Int8Element(packed.parts[0].data(), p.k, row, k)) - was;
        EXPECT_LE(std::abs(error), largest / 127 * 0.5 * 1.01 + std::abs(was) / 256) << row << ", " << k;
        squares += was * was;
        errors += error * error;
      }
    }
  }
  EXPECT_LT(std::sqrt(errors / squares), 0.008);
}

TEST(Int8Layout, EveryElementHasAPlaceOfItsOwn) {
  std::set<int> places;
  for (int row = 0; row < kInt8TileRows; ++row) {
    for (int column = 0; column < kInt8TileColumns; ++column) places.insert(Int8CodeAt(row, column));
  }
  EXPECT_EQ(places.size(), size_t(kInt8TileCodes));
  EXPECT_EQ(*places.begin(), 0);
  EXPECT_EQ(*places.rbegin(), kInt8TileCodes - 1);
  EXPECT_EQ(kInt8TileBytes % 16, 0) << "tiles are copied 16 bytes at a time";
}

TEST(Int8Layout, OddValues) {
  std::vector<float> rows(size_t(kInt8TileRows * kInt8TileColumns), 0);
  rows[0] = std::numeric_limits<float>::infinity();    // of row 0
  rows[size_t(kInt8TileColumns) + 3] = std::nanf("");  // of row 1
  rows[size_t(2 * kInt8TileColumns) + 5] = 1e-30f;     // of row 2
  rows[size_t(3 * kInt8TileColumns) + 7] = -127.0f;    // of row 3
  rows[size_t(3 * kInt8TileColumns) + 8] = 63.0f;
  std::vector<unsigned char> tile(kInt8TileBytes);
  PackInt8Rows(rows.data(), kInt8TileColumns, tile.data());
  const auto at = [&](int row, int column) {
    return BF16ToF32(Int8Element(tile.data(), kInt8TileColumns, row, column));
  };
  EXPECT_TRUE(std::isnan(at(0, 0)) && std::isnan(at(1, 3))) << "what is no number stays none";
  EXPECT_NEAR(at(2, 5), 1e-30f, 1e-32f);
  EXPECT_EQ(at(3, 7), -127.0f);
  EXPECT_EQ(at(3, 8), 63.0f);
  EXPECT_EQ(at(4, 0), 0.0f);
}

TEST(GemmInt8, RefusesPartsThatAreNotKeptAlike) {
  SLUICE_NEEDS_DEVICE();
  GemmArgs args{.a_stride = 64, .m = 1, .k = 64, .num_parts = 2};
  args.parts[0] = {.int8 = &args, .n = 8};
  args.parts[1] = {.n = 8};
  EXPECT_EQ(Gemm(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace sluice::kernels::cuda
