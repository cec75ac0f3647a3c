#include "engine/files/testing/random_tensor.h"

#include "kernels/dequant.h"

namespace sluice::engine {
namespace {

using kernels::DType;

void Put16(std::string* out, uint16_t bits) {
  out->push_back(char(bits & 255));
  out->push_back(char(bits >> 8));
}
void PutF16(std::string* out, float value) {
  Put16(out, kernels::F32ToF16(value));
}

void PutRandom(std::string* out, int count, TestRandom& random) {
  for (int i = 0; i < count; ++i) out->push_back(char(random.Next() >> 56));
}

// Blocks differ in scale by up to a factor of three.
float Spread(TestRandom& random) {
  return 0.5f + random.Uniform();
}

// Uniform integers of `levels` steps have the deviation levels / sqrt(12).
float StepFor(float deviation, int levels) {
  return deviation * 3.4641016f / float(levels);
}

// Scale, minimum in the middle (or none), then `bytes` random bytes.
void PutSmallBlock(std::string* out, float step, float middle, bool has_min, int bytes, TestRandom& random) {
  const float scale = step * Spread(random);
  PutF16(out, scale);
  if (has_min) PutF16(out, -middle * scale);
  PutRandom(out, bytes, random);
}

// Q4_K, Q5_K: the minimum of a sub-block is `middle` steps of its scale, so that its values are centred.
void PutK4Or5(std::string* out, float step, float middle, int bytes, TestRandom& random) {
  const float scale = step * Spread(random) / 48.0f;
  PutF16(out, scale);
  PutF16(out, scale * middle);
  uint8_t six[8], packed[12];
  for (uint8_t& s : six) s = uint8_t(32 + random.Below(32));
  for (int i = 0; i < 4; ++i) {
    packed[i] = packed[i + 4] = uint8_t(six[i] | (six[i + 4] >> 4) << 6);
    packed[i + 8] = uint8_t((six[i + 4] & 15) | (six[i + 4] & 15) << 4);
  }
  out->append(reinterpret_cast<const char*>(packed), sizeof(packed));
  PutRandom(out, bytes, random);
}

void PutQ6_K(std::string* out, float step, TestRandom& random) {
  PutRandom(out, 192, random);
  for (int i = 0; i < 16; ++i) {
    const int scale = int(32 + random.Below(96));
    out->push_back(char(random.Below(2) == 0 ? scale : -scale));
  }
  PutF16(out, step * Spread(random) / 80.0f);
}

void PutFloat(std::string* out, float value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutBlock(std::string* out, DType type, float deviation, TestRandom& random) {
  switch (type) {
    case DType::kF32:
      return PutFloat(out, deviation * random.Normal());
    case DType::kF16:
      return PutF16(out, deviation * random.Normal());
    case DType::kBF16:
      return Put16(out, kernels::F32ToBF16(deviation * random.Normal()));
    case DType::kQ4_0:
      return PutSmallBlock(out, StepFor(deviation, 16), 0, false, 16, random);
    case DType::kQ4_1:
      return PutSmallBlock(out, StepFor(deviation, 16), 7.5f, true, 16, random);
    case DType::kQ5_0:
      return PutSmallBlock(out, StepFor(deviation, 32), 0, false, 20, random);
    case DType::kQ5_1:
      return PutSmallBlock(out, StepFor(deviation, 32), 15.5f, true, 20, random);
    case DType::kQ8_0:
      return PutSmallBlock(out, StepFor(deviation, 256), 0, false, 32, random);
    case DType::kQ4_K:
      return PutK4Or5(out, StepFor(deviation, 16), 7.5f, 128, random);
    case DType::kQ5_K:
      return PutK4Or5(out, StepFor(deviation, 32), 15.5f, 160, random);
    case DType::kQ6_K:
      return PutQ6_K(out, StepFor(deviation, 64), random);
  }
}

}  // namespace

uint64_t TestRandom::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

float TestRandom::Normal() {
  float sum = -6.0f;
  for (int i = 0; i < 12; ++i) sum += Uniform();
  return sum;
}

std::string RandomTensor(DType type, int64_t rows, int64_t cols, float deviation, TestRandom& random) {
  std::string out;
  out.reserve(size_t(rows) * kernels::RowBytes(type, cols));
  const int64_t blocks = rows * cols / kernels::Info(type).block_elements;
  for (int64_t i = 0; i < blocks; ++i) PutBlock(&out, type, deviation, random);
  return out;
}

}  // namespace sluice::engine
