#include "engine/sampler_loops.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "engine/deterministic_math.h"

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

SLUICE_BODY float CleanAndMaxBody(std::span<float> logits) {
  constexpr size_t kLanes = 32;  // independent maxima, so that the loop becomes vector code
  float max[kLanes];
  int nans[kLanes] = {};
  std::fill_n(max, kLanes, kNegInf);
  const float* x = logits.data();
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      max[l] = x[i + l] > max[l] ? x[i + l] : max[l];
      nans[l] += x[i + l] != x[i + l];
    }
  }
  for (; i < logits.size(); ++i) {
    max[0] = x[i] > max[0] ? x[i] : max[0];
    nans[0] += x[i] != x[i];
  }
  int any = 0;
  for (int n : nans) any += n;
  if (any > 0) {
    for (float& logit : logits) logit = logit == logit ? logit : kNegInf;
  }
  return *std::max_element(max, max + kLanes);
}

SLUICE_BODY void ExpWeightsBody(std::span<const float> x, float max, float temperature, double* out) {
  const double m = max, t = temperature;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exponent = (double(x[i]) - m) / t;
    out[i] = x[i] == max ? 0.0 : exponent;
  }
  for (size_t i = 0; i < x.size(); ++i) out[i] = DetExp(out[i]);
}

SLUICE_BODY double ExpSumBody(std::span<const float> x, float max) {
  constexpr size_t kLanes = 8, kPiece = 256;
  double sum[kLanes] = {}, piece[kPiece];
  for (size_t begin = 0; begin < x.size(); begin += kPiece) {
    const size_t count = std::min(kPiece, x.size() - begin);
    ExpWeightsBody(x.subspan(begin, count), max, 1.0f, piece);
    std::fill(piece + count, piece + kPiece, 0.0);
    for (size_t i = 0; i < kPiece; i += kLanes) {
      for (size_t l = 0; l < kLanes; ++l) sum[l] += piece[i + l];
    }
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

// weight = 2^y <= 2^(round(y) + 1) =: bound, with a factor of at least sqrt 2 between them, which covers all rounding.
SLUICE_BODY bool AnyMayWinBody(std::span<const float> x, float max, float temperature, const double* u, double best) {
  using math_internal::kRounder;
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

SLUICE_TWICE(float, CleanAndMax, (std::span<float> logits), (logits))
SLUICE_TWICE(void, ExpWeights, (std::span<const float> x, float max, float temperature, double* out),
             (x, max, temperature, out))
SLUICE_TWICE(double, ExpSum, (std::span<const float> x, float max), (x, max))
SLUICE_TWICE(bool, AnyMayWin, (std::span<const float> x, float max, float temperature, const double* u, double best),
             (x, max, temperature, u, best))

}  // namespace sluice::engine
