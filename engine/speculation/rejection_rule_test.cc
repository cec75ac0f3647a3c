#include "engine/speculation/rejection_rule.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "engine/keyed_random.h"
#include "engine/sampler_draw.h"
#include "engine/speculation/verify_drafts.h"
#include "engine/testing/exact_sampling.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

constexpr int kDraws = 100000;

// min(p, q) is what is accepted of each token; the rest comes from the residual.
std::vector<double> OutputDistribution(const std::vector<double>& p, const std::vector<double>& q) {
  const double refused = 1 - AcceptanceProbability(p, q);
  std::vector<double> out = Residual(p, q);
  for (size_t i = 0; i < p.size(); ++i) out[i] = std::min(p[i], q[i]) + refused * out[i];
  return out;
}

TEST(RejectionRule, TheTwoDistributionExample) {
  const std::vector<double> p = {0.5, 0.3, 0.2}, q = {0.2, 0.2, 0.6};
  EXPECT_NEAR(AcceptanceProbability(p, q), 0.6, 1e-12);
  const std::vector<double> residual = Residual(p, q), expected = {0.75, 0.25, 0.0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(residual[i], expected[i], 1e-12);
    EXPECT_NEAR(OutputDistribution(p, q)[i], p[i], 1e-12);
  }
}

TEST(RejectionRule, TheOutputIsTheTargetForAnyTwoDistributions) {
  for (int seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&] {
      std::vector<double> d(2 + seed % 9);
      for (double& x : d) x = double(random() % 4 == 0 ? 0 : random() % 1000);
      d[0] += 1;
      const double sum = std::accumulate(d.begin(), d.end(), 0.0);
      for (double& x : d) x /= sum;
      return d;
    };
    const std::vector<double> p = draw(), q = draw();
    const std::vector<double> out = OutputDistribution(p, q);
    for (size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(out[i], p[i], 1e-12) << "seed " << seed;
  }
  const std::vector<double> same = {0.25, 0.75};
  EXPECT_EQ(Residual(same, same), same);
}

TEST(RejectionRule, DrawsTheTarget) {
  const std::vector<std::pair<std::vector<double>, std::vector<double>>> cases = {
      {{0.5, 0.3, 0.2}, {0.2, 0.2, 0.6}}, {{0.1, 0.2, 0.3, 0.4}, {0.4, 0.3, 0.2, 0.1}},
      {{0.0, 0.5, 0.5}, {0.9, 0.1, 0.0}}, {{1.0, 0.0}, {0.5, 0.5}},
      {{0.3, 0.7}, {0.3, 0.7}},
  };
  uint64_t seed = 2000;
  for (const auto& [p, q] : cases) {
    ++seed;
    int accepted = 0;
    ExpectDrawsFrom(p, seed, kDraws, [&, &target = p, &drafter = q](int i) {
      const int32_t draft = DrawFrom(drafter, {seed, 0, uint32_t(i), RandomPurpose::kDraft});
      const Verdict verdict = JudgeDraft(target, drafter, draft, {seed, 0, i});
      accepted += verdict.accepted;
      EXPECT_TRUE(!verdict.accepted || verdict.token == draft);
      return verdict.token;
    });
    const double rate = AcceptanceProbability(p, q);
    EXPECT_NEAR(double(accepted) / kDraws, rate, 5 * std::sqrt(rate * (1 - rate) / kDraws) + 1e-12);
  }
}

// Sequences of three tokens, each from the last one and from penalties on those before: the joint distribution of what
// either rule yields, over as many steps as it takes, against the exact product.
class ChainTest : public testing::Test {
 protected:
  static constexpr int kVocab = 3, kLength = 3;

  std::vector<float> Row(int last) const {
    const std::vector<std::vector<float>> rows = {{0.4f, 1.0f, 0.1f}, {0.9f, 0.2f, 0.5f}, {0.0f, 0.6f, 0.8f}};
    return rows[last];
  }
  std::vector<double> DraftRow(int last) const {
    const std::vector<std::vector<double>> rows = {{0.6, 0.2, 0.2}, {0.1, 0.5, 0.4}, {0.3, 0.3, 0.4}};
    return rows[last];
  }
  SamplingParams Params(uint64_t seed) const {
    return {.temperature = 0.9f,
            .top_k = 3,
            .repetition_penalty = 1.3f,
            .presence_penalty = 0.4f,
            .frequency_penalty = 0.3f,
            .seed = seed,
            .max_tokens = kLength};
  }
  std::vector<double> ExactJoint() const {
    std::vector<double> joint(kVocab * kVocab * kVocab, 0.0);
    const SamplingParams params = Params(0);
    for (int code = 0; code < int(joint.size()); ++code) {
      Said said{{1}, {}};
      double p = 1;
      for (int token : {code / 9, code / 3 % 3, code % 3}) {
        p *= ExactProbabilities(Row(said.answer.empty() ? 1 : said.answer.back()), params, said)[token];
        said.answer.push_back(token);
      }
      joint[code] = p;
    }
    return joint;
  }

  // verify(rows, drafts, q, key, generated, counts) -> tokens, until there are three. Returns their code.
  template <typename Verify>
  int Generate(uint64_t seed, int choice, bool draws_drafts, Verify verify) const {
    std::vector<int32_t> tokens = {1};
    TokenCounts counts(tokens, 1);
    while (int(tokens.size()) <= kLength) {
      std::vector<int32_t> drafts;
      std::vector<float> rows = Row(tokens.back());
      std::vector<double> q;
      for (int i = 0; i < 2; ++i) {
        const std::vector<double> draft_row = DraftRow(drafts.empty() ? tokens.back() : drafts.back());
        const uint32_t position = uint32_t(tokens.size()) + i;
        const int best = int(std::max_element(draft_row.begin(), draft_row.end()) - draft_row.begin());
        drafts.push_back(draws_drafts ? DrawFrom(draft_row, {seed, uint32_t(choice), position, RandomPurpose::kDraft})
                                      : best);
        if (draws_drafts) q.insert(q.end(), draft_row.begin(), draft_row.end());
        const std::vector<float> row = Row(drafts.back());
        rows.insert(rows.end(), row.begin(), row.end());
      }
      const int generated = int(tokens.size()) - 1;
      for (const Sampled& s : verify(rows, drafts, q, {seed, choice, int(tokens.size())}, generated, &counts)) {
        tokens.push_back(s.token);
      }
    }
    EXPECT_EQ(tokens.size(), size_t(kLength) + 1) << "max_tokens holds";
    return tokens[1] * 9 + tokens[2] * 3 + tokens[3];
  }
};

TEST_F(ChainTest, RejectionWithADrafterThatDraws) {
  const SamplingParams params = Params(3001);
  ExpectDrawsFrom(ExactJoint(), params.seed, kDraws, [&](int i) {
    return Generate(params.seed, i, true, [&](auto& rows, auto& drafts, auto& q, SampleKey key, int n, auto* counts) {
      return VerifyByRejection(rows, drafts, q, params, key, n, counts);
    });
  });
}

TEST_F(ChainTest, RejectionWithFixedDrafts) {
  const SamplingParams params = Params(3002);
  ExpectDrawsFrom(ExactJoint(), params.seed, kDraws, [&](int i) {
    return Generate(params.seed, i, false, [&](auto& rows, auto& drafts, auto& q, SampleKey key, int n, auto* counts) {
      return VerifyByRejection(rows, drafts, q, params, key, n, counts);
    });
  });
}

TEST_F(ChainTest, Equality) {
  const SamplingParams params = Params(3003);
  for (bool draws : {false, true}) {
    ExpectDrawsFrom(ExactJoint(), params.seed, kDraws, [&](int i) {
      return Generate(params.seed, i, draws, [&](auto& rows, auto& drafts, auto&, SampleKey key, int n, auto* counts) {
        return VerifyDrafts(rows, drafts, params, key, n, counts);
      });
    });
  }
}

TEST(RejectionRule, ReportsLogprobsOfTheModel) {
  std::vector<float> rows = {0.0f, 1.0f, 5.0f, 0.0f};
  const auto tokens =
      VerifyByRejection(rows, std::vector<int32_t>{1}, {}, {.logprobs = 2, .max_tokens = 9}, {}, 0, nullptr);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].token, 1);
  EXPECT_EQ(tokens[0].top.size(), 2u);
  std::vector<float> row = {0.0f, 1.0f};
  EXPECT_EQ(tokens[0].logprob, Score(row, 1, 0).logprob);
  EXPECT_EQ(tokens[1].token, 0);
}

}  // namespace
}  // namespace sluice::engine
