#include "kernels/dequant.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::kernels {
namespace {

uint32_t Bits(float f) {
  return std::bit_cast<uint32_t>(f);
}

std::vector<uint8_t> Unhex(const std::string& hex) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out.push_back(uint8_t(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return out;
}

struct Golden {
  DType type;
  std::vector<uint8_t> blocks;
  std::vector<uint32_t> bits;  // of the expected floats; 7fc00000 stands for any NaN
};

// Origin: see the first line of the file (values of the PyPI package gguf).
std::vector<Golden> ReadGolden() {
  std::ifstream in("tests/golden/dequant.txt");
  std::vector<Golden> out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    std::string name, blocks, values;
    fields >> name >> blocks >> values;
    Golden g{*DTypeFromName(name), Unhex(blocks), {}};
    for (size_t i = 0; i + 7 < values.size(); i += 8) {
      g.bits.push_back(uint32_t(std::stoul(values.substr(i, 8), nullptr, 16)));
    }
    out.push_back(g);
  }
  return out;
}

void ExpectSame(float actual, uint32_t expected, const std::string& where) {
  if (expected == 0x7fc00000) {
    EXPECT_TRUE(std::isnan(actual)) << where;
  } else {
    EXPECT_EQ(Bits(actual), expected) << where;
  }
}

TEST(DequantTest, EqualsGoldenBits) {
  std::map<DType, int> lines;
  for (const Golden& g : ReadGolden()) {
    const std::string where = std::string(Info(g.type).name) + " line " + std::to_string(lines[g.type]++);
    ASSERT_EQ(g.blocks.size(), RowBytes(g.type, int64_t(g.bits.size()))) << where;
    std::vector<float> out(g.bits.size());
    DequantizeRow(g.type, g.blocks.data(), int64_t(out.size()), out.data());
    for (size_t i = 0; i < out.size(); ++i) ExpectSame(out[i], g.bits[i], where + " element " + std::to_string(i));
  }
  EXPECT_EQ(lines.size(), size_t{kNumDTypes});
}

// A row of many blocks is its blocks one after the other, also from an odd address.
TEST(DequantTest, RowIsItsBlocks) {
  std::map<DType, std::pair<std::vector<uint8_t>, std::vector<uint32_t>>> rows;
  for (const Golden& g : ReadGolden()) {
    auto& [bytes, bits] = rows[g.type];
    if (bytes.empty()) bytes.push_back(0);
    bytes.insert(bytes.end(), g.blocks.begin(), g.blocks.end());
    bits.insert(bits.end(), g.bits.begin(), g.bits.end());
  }
  for (const auto& [type, row] : rows) {
    std::vector<float> out(row.second.size());
    DequantizeRow(type, row.first.data() + 1, int64_t(out.size()), out.data());
    for (size_t i = 0; i < out.size(); ++i) ExpectSame(out[i], row.second[i], std::string(Info(type).name));
  }
}

// The definition of IEEE 754 binary16, in double arithmetic.
double NaiveF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(DequantTest, EveryF16) {
  for (uint32_t b = 0; b < 65536; ++b) {
    const float actual = F16ToF32(uint16_t(b));
    const double expected = NaiveF16(uint16_t(b));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << b;
      ASSERT_TRUE(std::isnan(F16ToF32(F32ToF16(actual)))) << b;
    } else {
      ASSERT_EQ(Bits(actual), Bits(float(expected))) << b;
      ASSERT_EQ(F32ToF16(actual), b);
    }
  }
}

TEST(DequantTest, EveryBF16) {
  for (uint32_t b = 0; b < 65536; ++b) {
    const float actual = BF16ToF32(uint16_t(b));
    ASSERT_EQ(Bits(actual), b << 16);
    if (std::isnan(actual)) {
      ASSERT_TRUE(std::isnan(BF16ToF32(F32ToBF16(actual)))) << b;
    } else {
      ASSERT_EQ(F32ToBF16(actual), b);
    }
  }
}

// Round to nearest even between neighbours: `unit` maps bits to the value; magnitudes are monotonic in the bits.
void ExpectNearest(float value, uint16_t actual, float (*unit)(uint16_t), uint16_t infinity, double beyond) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  ASSERT_EQ(actual & 0x8000, sign) << value;
  const double v = std::fabs(double(value));
  const uint16_t m = actual & 0x7fff;
  // Infinity takes the place of the number that would follow the largest one.
  const auto at = [&](uint16_t bits) { return bits == infinity ? beyond : double(unit(bits)); };
  const double error = std::fabs(at(m) - v);
  if (m > 0) {
    const double lower = std::fabs(at(uint16_t(m - 1)) - v);
    ASSERT_TRUE(error < lower || (error == lower && m % 2 == 0)) << value;
  }
  if (m < infinity) {
    const double upper = std::fabs(at(uint16_t(m + 1)) - v);
    ASSERT_TRUE(error < upper || (error == upper && m % 2 == 0)) << value;
  } else {
    ASSERT_EQ(m, infinity);
  }
}

TEST(DequantTest, RoundsToNearestEven) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (int i = 0; i < 200000; ++i) {
    // Half of the values sit exactly between or next to two neighbours of the 16-bit formats.
    uint32_t bits = uint32_t(rng());
    if (i % 2 == 0) bits = ((bits & 0xffffe000) | (i % 4 == 0 ? 0x8000u : 0x1000u)) + uint32_t(rng() % 3) - 1;
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value) || std::isinf(value)) continue;
    ExpectNearest(value, F32ToBF16(value), BF16ToF32, 0x7f80, 0x1p128);
    if (std::fabs(value) < 0x1p17) ExpectNearest(value, F32ToF16(value), F16ToF32, 0x7c00, 65536.0);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(F32ToF16(65519.99f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(-1e30f), 0xfc00);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
}

}  // namespace
}  // namespace sluice::kernels
