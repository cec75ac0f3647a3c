#include "kernels/dequant.h"

#include <bit>
#include <cstring>

namespace sluice::kernels {
namespace {

// Blocks are read byte by byte: files only promise alignment of tensors, not of the fields inside a block.
uint16_t Load16(const uint8_t* p) {
  return uint16_t(p[0] | p[1] << 8);
}
float LoadF16(const uint8_t* p) {
  return F16ToF32(Load16(p));
}

void DequantQ4_0(const uint8_t* b, float* out) {
  const float d = LoadF16(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * float((b[2 + i] & 15) - 8);
    out[i + 16] = d * float((b[2 + i] >> 4) - 8);
  }
}

void DequantQ4_1(const uint8_t* b, float* out) {
  const float d = LoadF16(b), m = LoadF16(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * float(b[4 + i] & 15) + m;
    out[i + 16] = d * float(b[4 + i] >> 4) + m;
  }
}

// The fifth bit of element i is bit i of a 32-bit word before the nibbles.
int FifthBit(const uint8_t* high, int i) {
  return (high[i / 8] >> (i % 8) & 1) << 4;
}

void DequantQ5_0(const uint8_t* b, float* out) {
  const float d = LoadF16(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * float(((b[6 + i] & 15) | FifthBit(b + 2, i)) - 16);
    out[i + 16] = d * float(((b[6 + i] >> 4) | FifthBit(b + 2, i + 16)) - 16);
  }
}

void DequantQ5_1(const uint8_t* b, float* out) {
  const float d = LoadF16(b), m = LoadF16(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * float((b[8 + i] & 15) | FifthBit(b + 4, i)) + m;
    out[i + 16] = d * float((b[8 + i] >> 4) | FifthBit(b + 4, i + 16)) + m;
  }
}

void DequantQ8_0(const uint8_t* b, float* out) {
  const float d = LoadF16(b);
  for (int i = 0; i < 32; ++i) out[i] = d * float(int8_t(b[2 + i]));
}

struct ScaleMin {
  int scale, min;  // 6 bits each
};

// Q4_K and Q5_K pack the scales and minima of eight sub-blocks into 12 bytes: six bits of the first four, then the low
// nibbles of the last four, whose upper two bits ride on the first eight bytes.
ScaleMin KScale(const uint8_t* s, int i) {
  if (i < 4) return {s[i] & 63, s[i + 4] & 63};
  return {(s[i + 4] & 15) | (s[i - 4] >> 6) << 4, (s[i + 4] >> 4) | (s[i] >> 6) << 4};
}

// qh: null for Q4_K; else [32] bytes whose bit i is the fifth bit of sub-block i's element.
void DequantK4Or5(const uint8_t* b, const uint8_t* qh, const uint8_t* qs, float* out) {
  const float d = LoadF16(b), dmin = LoadF16(b + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleMin sm = KScale(b + 4, sub);
    const float scale = d * float(sm.scale), min = dmin * float(sm.min);
    const uint8_t* q = qs + sub / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      int v = sub % 2 == 0 ? q[i] & 15 : q[i] >> 4;
      if (qh != nullptr) v |= (qh[i] >> sub & 1) << 4;
      out[sub * 32 + i] = scale * float(v) - min;
    }
  }
}

void DequantQ4_K(const uint8_t* b, float* out) {
  DequantK4Or5(b, nullptr, b + 16, out);
}
void DequantQ5_K(const uint8_t* b, float* out) {
  DequantK4Or5(b, b + 16, b + 48, out);
}

void DequantQ6_K(const uint8_t* b, float* out) {
  const uint8_t *ql = b, *qh = b + 128, *scales = b + 192;
  const float d = LoadF16(b + 208);
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128, i = e % 128;
    const int low = ql[half * 64 + i % 64] >> (i / 64 * 4) & 15;
    const int high = qh[half * 32 + i % 32] >> (i / 32 * 2) & 3;
    const float scale = d * float(int8_t(scales[e / 16]));
    out[e] = scale * float((low | high << 4) - 32);
  }
}

using BlockFn = void (*)(const uint8_t* block, float* out);

void DequantF16(const uint8_t* b, float* out) {
  *out = LoadF16(b);
}
void DequantBF16(const uint8_t* b, float* out) {
  *out = BF16ToF32(Load16(b));
}
void DequantF32(const uint8_t* b, float* out) {
  std::memcpy(out, b, sizeof(float));
}

BlockFn FunctionFor(DType type) {
  switch (type) {
    case DType::kF32:
      return DequantF32;
    case DType::kF16:
      return DequantF16;
    case DType::kBF16:
      return DequantBF16;
    case DType::kQ4_0:
      return DequantQ4_0;
    case DType::kQ4_1:
      return DequantQ4_1;
    case DType::kQ5_0:
      return DequantQ5_0;
    case DType::kQ5_1:
      return DequantQ5_1;
    case DType::kQ8_0:
      return DequantQ8_0;
    case DType::kQ4_K:
      return DequantQ4_K;
    case DType::kQ5_K:
      return DequantQ5_K;
    case DType::kQ6_K:
      return DequantQ6_K;
  }
  __builtin_unreachable();
}

}  // namespace

void DequantizeRow(DType type, const void* row, int64_t cols, float* out) {
  const DTypeInfo& info = Info(type);
  const BlockFn block_fn = FunctionFor(type);
  const auto* block = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < cols; i += info.block_elements, block += info.block_bytes) block_fn(block, out + i);
}

float F16ToF32(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);  // infinity, NaN
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = float(mantissa) * 0x1p-24f;  // zero and subnormals: exact in f32
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

float BF16ToF32(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));  // NaN, made quiet
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds to 2^16 or more: infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14 the unit is 2^-24: adding 0.5 leaves exactly those bits in the low mantissa, rounded to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | ((rounded - (112u << 23)) >> 13));
}

uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace sluice::kernels
