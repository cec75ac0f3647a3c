// The kernels that sample on a GPU against the sampler of the CPU (engine/sampler.h): the same token and the same bits
// of every log-probability, for whatever rows are sampled side by side.
#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runner/device_sampling.h"
#include "engine/sampler.h"
#include "engine/sampler_loops.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/testing/device_array.h"

namespace sluice {
namespace {

using engine::Sampled;
using engine::SampleKey;
using engine::SamplingParams;
using engine::TokenCounts;
using kernels::LogitEdit;
using kernels::SampledToken;
using kernels::SampleRow;
using kernels::cuda::DeviceArray;

constexpr float kInf = std::numeric_limits<float>::infinity();

// What is asked of one row; none of it where `host`.
struct Asked {
  std::vector<float> logits;
  SamplingParams params;
  SampleKey key;
  int generated = 0;
  TokenCounts counts;
  int given = -1;  // that token's log-probability
  bool host = false;
};

Sampled OnCpu(const Asked& a) {
  std::vector<float> row = a.logits;
  if (a.given >= 0) return engine::Score(row, a.given, a.params.logprobs);
  return engine::Sample(row, a.params, a.key, a.generated, &a.counts);
}

// All rows in one launch.
std::vector<Sampled> OnDevice(const std::vector<Asked>& asked) {
  const int rows = int(asked.size()), vocab = int(asked[0].logits.size());
  const size_t blocks = size_t(kernels::NumLogitBlocks(vocab));
  engine::DeviceSampling sampling({.rows = rows, .edits = 1 << 20, .tops = kernels::cuda::kMostSampleTops}, vocab);
  std::vector<float> logits, maxima;
  for (const Asked& a : asked) {
    logits.insert(logits.end(), a.logits.begin(), a.logits.end());
    std::vector<float> clean = a.logits, of_row(blocks);
    engine::CleanAndMax(clean, of_row);
    maxima.insert(maxima.end(), of_row.begin(), of_row.end());
    if (a.host) {
      sampling.AddHost();
    } else if (a.given >= 0) {
      EXPECT_TRUE(sampling.AddGiven(a.given, a.params.logprobs));
    } else {
      EXPECT_TRUE(sampling.AddDraw(a.params, a.key, a.generated, a.params.penalizes() ? &a.counts : nullptr, {}));
    }
  }
  const kernels::SampleBatch& batch = sampling.batch();
  DeviceArray<float> device_logits(logits), device_maxima(maxima);
  DeviceArray<SampleRow> device_rows(std::vector<SampleRow>(batch.rows.begin(), batch.rows.end()));
  DeviceArray<LogitEdit> edits(std::vector<LogitEdit>(batch.edits.begin(), batch.edits.end()));
  DeviceArray<SampledToken> tokens(std::vector<SampledToken>(size_t(rows), {-7, -7})), tops(batch.tops.size());
  const size_t bytes = kernels::cuda::SampleWorkspace(rows, vocab, int(batch.edits.size()));
  DeviceArray<uint8_t> workspace(std::vector<uint8_t>(bytes, 0xff));
  kernels::cuda::Check(kernels::cuda::Sample({.logits = device_logits.data(),
                                              .maxima = device_maxima.data(),
                                              .rows_of = device_rows.data(),
                                              .edits = edits.data(),
                                              .tokens = tokens.data(),
                                              .tops = tops.data(),
                                              .workspace = workspace.data(),
                                              .rows = rows,
                                              .vocab = vocab},
                                             nullptr));
  const std::vector<SampledToken> got = tokens.Read(), got_tops = tops.Read();
  std::copy(got.begin(), got.end(), batch.tokens.begin());
  std::copy(got_tops.begin(), got_tops.end(), batch.tops.begin());
  const std::vector<float> after = device_logits.Read();
  std::vector<Sampled> all;
  for (size_t row = 0; row < size_t(rows); ++row) {
    all.push_back(asked[row].host ? Sampled{} : sampling.Taken(row));
    if (!asked[row].host) continue;
    EXPECT_EQ(batch.tokens[row].token, -7) << "a row of the host's was written";
    EXPECT_EQ(0, std::memcmp(&after[row * size_t(vocab)], asked[row].logits.data(), size_t(vocab) * sizeof(float)));
  }
  return all;
}

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void ExpectSame(const Sampled& got, const Sampled& want, const std::string& what) {
  ASSERT_EQ(got.token, want.token) << what;
  ASSERT_TRUE(SameBits(got.logprob, want.logprob)) << what << ": " << got.logprob << ", not " << want.logprob;
  ASSERT_EQ(got.top.size(), want.top.size()) << what;
  for (size_t i = 0; i < want.top.size(); ++i) {
    ASSERT_EQ(got.top[i].first, want.top[i].first) << what << ", alternative " << i;
    ASSERT_TRUE(SameBits(got.top[i].second, want.top[i].second)) << what << ", alternative " << i;
  }
}

using Random = std::mt19937;

int Below(Random& random, int n) {
  return int(random() % uint32_t(n));
}
bool OneIn(Random& random, int n) {
  return Below(random, n) == 0;
}

// Shapes of a model's rows, and of none: many equals, infinities, NaN, a row of one value.
std::vector<float> RandomLogits(Random& random, int vocab) {
  std::vector<float> x(static_cast<size_t>(vocab));
  const int shape = Below(random, 6);
  std::normal_distribution<float> bell(shape == 1 ? 90.0f : 0.0f, 2.5f);
  for (float& value : x) {
    value = shape == 2   ? float(Below(random, 16) - 8) * 0.5f
            : shape == 3 ? 1.0f
            : shape == 4 ? bell(random) * 1e37f
                         : bell(random);
  }
  if (shape < 2) {
    for (int i = 0; i < 12; ++i) x[size_t(Below(random, vocab))] += 9.0f - 0.7f * float(i);
  }
  if (OneIn(random, 3)) {
    const int of = 1 + Below(random, 40);
    const std::vector<float> odd = {NAN, -kInf, -0.0f, 0.0f, kInf};
    for (float& value : x) {
      if (OneIn(random, of)) value = odd[size_t(Below(random, OneIn(random, 4) ? 5 : 4))];
    }
  }
  return x;
}

template <typename T>
T OneOf(Random& random, const std::vector<T>& values) {
  return values[size_t(Below(random, int(values.size())))];
}

Asked RandomAsked(Random& random, int vocab) {
  Asked a;
  a.logits = RandomLogits(random, vocab);
  a.params.logprobs = OneOf<int>(random, {-1, -1, 0, 1, 5, 20, 100});
  a.host = OneIn(random, 10);
  if (OneIn(random, 10)) {
    a.given = Below(random, vocab);
    a.params.logprobs = std::max(a.params.logprobs, 0);
    return a;
  }
  SamplingParams& p = a.params;
  p.temperature = OneOf<float>(random, {0, 0, 0.3f, 0.7f, 1, 1, 1, 2, 30, 1e-45f, 3e38f});
  p.top_p = OneOf<float>(random, {1, 1, 0.95f, 0.5f, 0.1f, 1e-45f, 0.99999994f});
  p.top_k = OneIn(random, 2) ? 0 : OneIn(random, 2) ? 1 + Below(random, 50) : 1 + Below(random, 2 * vocab);
  p.min_p = OneOf<float>(random, {0, 0, 0, 0.05f, 0.5f, 1, 1e-30f});
  if (OneIn(random, 3)) {
    p.repetition_penalty = OneOf<float>(random, {1, 1.1f, 1.7f, 0.5f, 1e-45f, 3e38f});
    p.presence_penalty = OneOf<float>(random, {0, 0.3f, -2, 3e38f});
    p.frequency_penalty = OneOf<float>(random, {0, 0.1f, -0.7f});
  }
  if (OneIn(random, 4)) {
    const int step = 1 + Below(random, vocab);
    for (int id = -2; id < vocab + 3; id += step) {
      p.logit_bias.emplace_back(id, OneOf<float>(random, {-100, 1, 8, 3e38f}));
    }
  }
  if (OneIn(random, 4)) {
    p.min_tokens = 3;
    for (int i = 0; i < 3; ++i) p.eos_ids.push_back(Below(random, vocab + 2) - 1);
    for (int i = OneIn(random, 20) ? vocab : 2; i > 0; --i) p.stop_ids.push_back(i - 1);
  }
  std::vector<int32_t> said;
  for (int i = 0; i < 40; ++i) said.push_back(Below(random, vocab + 1));
  a.generated = Below(random, 6);
  a.counts = TokenCounts(said, 40 - a.generated);
  a.key = {uint64_t(random()) << 32 | random(), Below(random, 4), 40 + Below(random, 1000)};
  return a;
}

std::string Words(const Asked& a) {
  const SamplingParams& p = a.params;
  return absl::StrCat(a.logits.size(), " logits, temperature ", p.temperature, ", top_k ", p.top_k, ", top_p ", p.top_p,
                      ", min_p ", p.min_p, ", penalties ", p.repetition_penalty, " ", p.presence_penalty, " ",
                      p.frequency_penalty, ", biases ", p.logit_bias.size(), ", min_tokens ", p.min_tokens, " after ",
                      a.generated, ", logprobs ", p.logprobs, ", given ", a.given);
}

// A row's answer is the CPU's, beside any others. SLUICE_SEED=N repeats a failure.
TEST(CudaSampling, IsTheCpusToTheBit) {
  SLUICE_NEEDS_DEVICE();
  const char* const given = std::getenv("SLUICE_SEED");
  const auto seed = uint32_t(given != nullptr ? std::atoll(given) : int64_t(std::random_device()()));
  Random random(seed);
  for (int round = 0; round < 12; ++round) {
    const int vocab = OneOf<int>(random, {1, 2, 63, 64, 65, 200, 1000, 4095, 4097, 9001});
    std::vector<Asked> asked;
    for (int i = 1 + Below(random, 12); i > 0; --i) asked.push_back(RandomAsked(random, vocab));
    const std::vector<Sampled> got = OnDevice(asked);
    for (size_t i = 0; i < asked.size(); ++i) {
      if (asked[i].host) continue;
      ExpectSame(got[i], OnCpu(asked[i]),
                 absl::StrCat("seed ", seed, ", round ", round, ", row ", i, ": ", Words(asked[i])));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Draws of one row at many positions have its distribution because they are the CPU's, which are tested for it.
TEST(CudaSampling, ManyPositionsOfOneRow) {
  SLUICE_NEEDS_DEVICE();
  Random random(5);
  std::vector<Asked> asked(64);
  const std::vector<float> logits = RandomLogits(random, 300);
  const std::vector<SamplingParams> params = {{.temperature = 1.0f},
                                              {.temperature = 2.0f, .top_p = 0.9f},
                                              {.temperature = 2.0f, .top_k = 20},
                                              {.temperature = 2.0f, .top_p = 0.8f, .top_k = 100, .min_p = 0.02f}};
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].logits = logits;
    asked[i].params = params[i % params.size()];
    asked[i].key = {77 + (uint64_t(i & 4) << 40), int(i & 3), int(i)};
  }
  const std::vector<Sampled> got = OnDevice(asked);
  for (size_t i = 0; i < asked.size(); ++i) {
    ASSERT_NO_FATAL_FAILURE(ExpectSame(got[i], OnCpu(asked[i]), absl::StrCat("position ", i)));
  }
}

TEST(CudaSampling, RefusesWhatItCannotHold) {
  EXPECT_EQ(kernels::cuda::Sample({.rows = 1, .vocab = kernels::cuda::kMostSampleVocab + 1}, nullptr),
            cudaErrorInvalidValue);
  EXPECT_EQ(kernels::cuda::Sample({.rows = 0, .vocab = 10}, nullptr), cudaSuccess);
  engine::DeviceSampling few({.rows = 9, .edits = 2, .tops = 4}, 100);
  const SamplingParams bias{.logit_bias = {{1, 1.0f}, {2, 1.0f}}};
  EXPECT_TRUE(few.AddDraw(bias, {}, 0, nullptr, {}));
  EXPECT_FALSE(few.AddDraw(bias, {}, 0, nullptr, {})) << "no room for its edits";
  EXPECT_FALSE(few.AddDraw({.logprobs = 5}, {}, 0, nullptr, {}));
  EXPECT_TRUE(few.AddGiven(7, 4));
  EXPECT_FALSE(few.AddGiven(7, 5));
  for (int i = 2; i < 9; ++i) EXPECT_TRUE(few.AddDraw({}, {}, 0, nullptr, {}));
  EXPECT_FALSE(few.AddDraw({}, {}, 0, nullptr, {})) << "no room for the row";
}

}  // namespace
}  // namespace sluice
