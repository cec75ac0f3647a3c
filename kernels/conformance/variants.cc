// All variants of a subject are one arithmetic: the same name, the same bits, for every type of weight.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

void AgreeForEveryType(const Subject& subject) {
  Backends backends(subject);
  for (int t = 0; t < kNumDTypes; ++t) {
    const TinyShape shape{.layers = 1, .hidden = 256, .heads = 16, .kv_heads = 4, .ffn = 512, .type = DType(t)};
    SCOPED_TRACE(shape.ToString());
    std::mt19937 rng(kSeed);
    const TinyWeights weights(shape, 150, kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights,
                                          {RandomTokens(17, shape.vocab, rng), RandomTokens(66, shape.vocab, rng)});
    for (const Variant& variant : subject.variants) {
      std::mt19937 steps(kSeed);
      TinyModel model(backends.next(), weights, expected.tokens, 2);
      model.RunMixed(steps, /*drafts=*/true);
      if (!ExpectSame(subject, expected, model, variant.name)) return;
    }
  }
}

void SayWhatTheyAre(const Subject& subject) {
  Backends backends(subject);
  const KvDType kv = backends.first().kv_dtype();
  for (const Variant& variant : subject.variants) {
    const Backend& backend = backends.next();
    EXPECT_EQ(backend.numerics_id(), subject.numerics_id) << variant.name;
    EXPECT_EQ(backend.kv_dtype(), kv) << variant.name;
  }
}

}  // namespace

std::vector<Check> VariantChecks() {
  return {{"Variants", "AgreeForEveryType", AgreeForEveryType}, {"Variants", "SayWhatTheyAre", SayWhatTheyAre}};
}

}  // namespace sluice::kernels::conformance
