// f32 arithmetic is near the naive reference: within a bound that is derived, not measured. Subjects of another
// arithmetic have no such bound; their error is measured on real models (bench/).
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"
#include "kernels/conformance/reference.h"

namespace sluice::kernels::conformance {
namespace {

// A chain of dot products of length K, each off by at most (K / 16 + 8) roundings of sum |x| |w|, which for random
// signs is about sqrt(K) times the result. Six products a layer, and the head.
double Tolerance(const TinyShape& s, double rms) {
  const int k = std::max({s.hidden, s.ffn, s.q_dim()});
  return (6 * s.layers + 1) * (k / 16 + 8) * (std::numeric_limits<float>::epsilon() / 2) * std::sqrt(double(k)) * rms;
}

void ExpectNearReference(const Backend& backend, double rms_error, const TinyShape& shape, int length) {
  SCOPED_TRACE(shape.ToString());
  std::mt19937 rng(kSeed);
  const TinyWeights weights(shape, length, kSeed);
  const std::vector<int32_t> tokens = RandomTokens(length, shape.vocab, rng);
  TinyModel model(backend, weights, {tokens}, kSeed);
  model.RunAlone(length);
  const auto expected = ReferenceLogits(weights, tokens);
  double worst = 0, worst_value = 0, squares = 0, errors = 0;
  size_t worst_position = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t n = 0; n < expected[i].size(); ++n) {
      squares += expected[i][n] * expected[i][n];
      const double error = std::abs(double(model.logits(0)[i][n]) - expected[i][n]);
      errors += error * error;
      if (!(error <= worst)) {  // NaN counts
        worst = error;
        worst_position = i;
        worst_value = expected[i][n];
      }
    }
  }
  const double rms = std::sqrt(squares / double(expected.size() * size_t(shape.vocab)));
  if (rms_error > 0) {
    EXPECT_LE(std::sqrt(errors / squares), rms_error);
    return;
  }
  EXPECT_LE(worst, Tolerance(shape, rms))
      << "worst at position " << worst_position << ", where " << worst_value << " is expected; rms " << rms;
}

void EveryType(const Subject& subject) {
  Backends backends(subject);
  for (int t = 0; t < kNumDTypes; ++t) {
    TinyShape shape{.hidden = 256, .heads = 16, .kv_heads = 4, .ffn = 256, .type = DType(t)};
    if (subject.rms_error > 0)
      shape.layers = 1;  // roundings grow from layer to layer, the more the less alike rows are
    ExpectNearReference(backends.next(), subject.rms_error, shape, 10);
  }
}

void EveryHeadShape(const Subject& subject) {
  Backends backends(subject);
  for (int head_dim : {16, 32, 64, 80, 128}) {
    for (auto [heads, kv_heads] : {std::pair(9, 3), std::pair(8, 8), std::pair(8, 1)}) {
      const TinyShape shape{.layers = 1,
                            .hidden = 32,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .rotary_dim = head_dim,
                            .ffn = 32,
                            .type = DType::kF32};
      ExpectNearReference(backends.next(), subject.rms_error, shape, 67);
    }
  }
}

void OddSizesAndOptions(const Subject& subject) {
  Backends backends(subject);
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int hidden : {1, 15, 17, 33, 100}) {
      const TinyShape shape{.hidden = hidden,
                            .heads = 2,
                            .kv_heads = 1,
                            .head_dim = 10,
                            .rotary_dim = 6,
                            .ffn = 45,
                            .vocab = 13,
                            .block_size = 3,
                            .type = type,
                            .rope = RopeStyle::kHalfSplit,
                            .activation = MlpActivation::kGeluTanh,
                            .bias = true};
      ExpectNearReference(backends.next(), subject.rms_error, shape, 20);
    }
  }
}

}  // namespace

std::vector<Check> NearReferenceChecks() {
  return {{"NearReference", "EveryType", EveryType},
          {"NearReference", "EveryHeadShape", EveryHeadShape},
          {"NearReference", "OddSizesAndOptions", OddSizesAndOptions}};
}

}  // namespace sluice::kernels::conformance
