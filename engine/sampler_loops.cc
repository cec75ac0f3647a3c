#include "engine/sampler_loops.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "engine/deterministic_math.h"
#include "kernels/backend.h"
#include "kernels/sampling_math.h"

// SLUICE_TWICE(result, name, parameters, arguments) defines `name` and least_cpu::name from the inline nameBody.
#define SLUICE_LEAST(result, name, parameters, arguments) \
  result least_cpu::name parameters {                     \
    return name##Body arguments;                          \
  }
#if defined(__x86_64__)
#define SLUICE_TWICE(result, name, parameters, arguments)                                     \
  SLUICE_LEAST(result, name, parameters, arguments)                                           \
  __attribute__((target("avx2"))) static result name##Avx2 parameters {                       \
    return name##Body arguments;                                                              \
  }                                                                                           \
  result name parameters {                                                                    \
    return __builtin_cpu_supports("avx2") ? name##Avx2 arguments : least_cpu::name arguments; \
  }
#else
#define SLUICE_TWICE(result, name, parameters, arguments) \
  SLUICE_LEAST(result, name, parameters, arguments)       \
  result name parameters {                                \
    return least_cpu::name arguments;                     \
  }
#endif
#define SLUICE_BODY static inline __attribute__((always_inline))

namespace sluice::engine {

namespace {
constexpr float kNegInf = -std::numeric_limits<float>::infinity();
}

// Lanes, so that the loops become vector code.
SLUICE_BODY float BlockMax(const float* x, bool& nan) {
  constexpr size_t kLanes = 32;
  static_assert(kernels::kLogitBlock == 2 * kLanes);
  float max[kLanes];
  int nans[kLanes];
  for (size_t l = 0; l < kLanes; ++l) {
    const float a = x[l], b = x[l + kLanes], from = a > kNegInf ? a : kNegInf;
    max[l] = b > from ? b : from;
    nans[l] = (a != a) | (b != b);
  }
  for (size_t d = kLanes / 2; d > 0; d /= 2) {
    for (size_t l = 0; l < d; ++l) {
      max[l] = max[l + d] > max[l] ? max[l + d] : max[l];
      nans[l] |= nans[l + d];
    }
  }
  nan |= nans[0] != 0;
  return max[0];
}

SLUICE_BODY float CleanAndMaxBody(std::span<float> logits, std::span<float> maxima) {
  constexpr size_t kBlock = kernels::kLogitBlock;
  const size_t whole = logits.size() / kBlock;
  bool nan = false;
  float max = kNegInf;
  for (size_t b = 0; b < whole; ++b) {
    maxima[b] = BlockMax(logits.data() + b * kBlock, nan);
    max = maxima[b] > max ? maxima[b] : max;
  }
  if (whole * kBlock < logits.size()) {
    float rest[kBlock];
    std::fill(std::copy(logits.begin() + std::ptrdiff_t(whole * kBlock), logits.end(), rest), rest + kBlock, kNegInf);
    maxima[whole] = BlockMax(rest, nan);
    max = maxima[whole] > max ? maxima[whole] : max;
  }
  if (nan) {
    for (float& logit : logits) logit = logit == logit ? logit : kNegInf;
  }
  return max;
}

SLUICE_BODY void ExpWeightsBody(std::span<const float> x, float max, float temperature, double* out) {
  const double inverse = 1.0 / double(temperature);
  for (size_t i = 0; i < x.size(); ++i) out[i] = kernels::WeightExponent(x[i], max, inverse);
  for (size_t i = 0; i < x.size(); ++i) out[i] = DetExp(out[i]);
}

SLUICE_BODY double ExpSumBody(std::span<const float> x, float max) {
  constexpr size_t kLanes = kernels::kSampleLanes, kBlock = kernels::kLogitBlock, kPiece = 4 * kBlock;
  double total = 0.0, of_chunk = 0.0, piece[kPiece];
  for (size_t begin = 0; begin < x.size(); begin += kPiece) {
    const size_t count = std::min(kPiece, x.size() - begin);
    ExpWeightsBody(x.subspan(begin, count), max, 1.0f, piece);
    std::fill(piece + count, piece + kPiece, 0.0);
    for (const double* block = piece; block < piece + kPiece; block += kBlock) {
      double sum[kLanes];
      for (size_t l = 0; l < kLanes; ++l) sum[l] = block[l];
      for (size_t i = kLanes; i < kBlock; i += kLanes) {
        for (size_t l = 0; l < kLanes; ++l) sum[l] += block[i + l];
      }
      of_chunk += ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    }
    if ((begin + kPiece) % kernels::kSampleChunk == 0 || begin + kPiece >= x.size()) {
      total += of_chunk;
      of_chunk = 0.0;
    }
  }
  return total;
}

SLUICE_BODY void WeightClassesBody(std::span<const float> x, float max, float temperature, int* out) {
  const float scale = kernels::WeightClassScale(temperature);
  for (size_t i = 0; i < x.size(); ++i) out[i] = kernels::WeightClass(x[i], max, scale);
}

// weight = 2^y <= 2^(round(y) + 1) =: bound, with a factor of at least sqrt 2 between them, which covers all rounding.
SLUICE_BODY bool AnyMayWinBody(std::span<const float> x, float max, float temperature, const double* u, double best) {
  using kernels::math_internal::kRounder;
  const double m = max, scale = 0x1.71547652b82fep0 / double(temperature);
  uint64_t any = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double y = x[i] == max ? 0.0 : (double(x[i]) - m) * scale;
    y = y < -1000.0 ? -1000.0 : y;
    const double bound = std::bit_cast<double>((std::bit_cast<uint64_t>(y + kRounder) + 1024) << 52);
    any |= 1.0 - u[i] <= best * bound ? 1 : 0;
  }
  return any != 0;
}

SLUICE_TWICE(float, CleanAndMax, (std::span<float> logits, std::span<float> maxima), (logits, maxima))
SLUICE_TWICE(void, ExpWeights, (std::span<const float> x, float max, float temperature, double* out),
             (x, max, temperature, out))
SLUICE_TWICE(void, WeightClasses, (std::span<const float> x, float max, float temperature, int* out),
             (x, max, temperature, out))
SLUICE_TWICE(double, ExpSum, (std::span<const float> x, float max), (x, max))
SLUICE_TWICE(bool, AnyMayWin, (std::span<const float> x, float max, float temperature, const double* u, double best),
             (x, max, temperature, u, best))

}  // namespace sluice::engine
