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

// The same steps in every variant, and again in the first: equal bits, whether or not a row's depend on the step.
void TheSameStepsHaveTheSameBits(const Subject& subject) {
  Backends backends(subject);
  Subject to_the_bit = subject;
  to_the_bit.batch_error = 0;
  const TinyShape shape;
  const TinyWeights weights(shape, 150, kSeed);
  Expected first;
  for (size_t i = 0; i <= subject.variants.size(); ++i) {
    std::mt19937 steps(kSeed);
    TinyModel model(backends.next(), weights, BorderTokens(shape.vocab), 2);
    model.RunMixed(steps, /*drafts=*/true);
    if (i > 0) {
      const std::string& what = subject.variants[i % subject.variants.size()].name;
      if (!ExpectSame(to_the_bit, first, model, what)) return;
      continue;
    }
    for (int seq = 0; seq < model.num_seqs(); ++seq) {
      first.logits.push_back(model.logits(seq));
      first.kv.push_back(model.ReadFullBlocks(seq, subject.read));
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
  return {{"Variants", "AgreeForEveryType", AgreeForEveryType},
          {"Variants", "TheSameStepsHaveTheSameBits", TheSameStepsHaveTheSameBits},
          {"Variants", "SayWhatTheyAre", SayWhatTheyAre}};
}

}  // namespace sluice::kernels::conformance
