#include "kernels/conformance/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/conformance/reference.h"
#include "kernels/conformance/tiny_model.h"

namespace sluice::kernels::conformance {
namespace {

constexpr uint32_t kSeed = 20240607;

class Conformance : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { backend_ = Make(GetParam().variants[0]); }

  static std::unique_ptr<Backend> Make(const Variant& variant) {
    auto made = variant.make();
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  std::unique_ptr<Backend> backend_;
};

std::vector<int32_t> RandomTokens(int count, int vocab, std::mt19937& rng) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(int32_t(rng() % uint32_t(vocab)));
  return tokens;
}

// Sequences that end just before, at and after borders of blocks and key tiles.
std::vector<std::vector<int32_t>> BorderTokens(int vocab) {
  std::mt19937 rng(kSeed);
  std::vector<std::vector<int32_t>> all;
  for (int n : {1, 15, 16, 17, 63, 64, 65, 130}) all.push_back(RandomTokens(n, vocab, rng));
  return all;
}

void ExpectSameBits(const Logits& a, const Logits& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].empty() || b[i].empty()) continue;
    ASSERT_EQ(a[i].size(), b[i].size());
    ASSERT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)), 0)
        << what << ": position " << i << " of " << a.size() << " differs; first logits " << a[i][0] << " and "
        << b[i][0];
  }
}

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

TEST_P(Conformance, RowDependsOnItselfAlone) {
  const TinyShape shapes[] = {
      {},
      {.hidden = 64,
       .heads = 8,
       .kv_heads = 1,
       .head_dim = 80,
       .rotary_dim = 80,
       .type = DType::kQ8_0,
       .rope = RopeStyle::kHalfSplit},
      {.hidden = 100,
       .heads = 4,
       .kv_heads = 4,
       .head_dim = 20,
       .rotary_dim = 12,
       .ffn = 75,
       .block_size = 5,
       .type = DType::kF16,
       .bias = true},
  };
  for (const TinyShape& shape : shapes) {
    SCOPED_TRACE(shape.ToString());
    const auto tokens = BorderTokens(shape.vocab);
    const TinyWeights weights(shape, 130, kSeed);
    TinyModel decode(*backend_, weights, tokens, 1);  // token by token, each sequence alone
    decode.RunAlone(1);
    const auto compare = [&](const TinyModel& other, const std::string& what) {
      for (int seq = 0; seq < int(tokens.size()); ++seq) ExpectSameBits(decode.logits(seq), other.logits(seq), what);
    };
    for (int chunk : {1000, 64, 33, 16, 7, 2}) {
      TinyModel chunked(*backend_, weights, tokens, 2);  // other physical blocks as well
      chunked.RunAlone(chunk);
      compare(chunked, "chunks of " + std::to_string(chunk));
    }
    for (uint32_t seed = 3; seed < 7; ++seed) {
      std::mt19937 rng(seed);
      TinyModel mixed(*backend_, weights, tokens, seed);
      mixed.RunMixed(rng);
      compare(mixed, "random batches of seed " + std::to_string(seed));
    }
  }
}

TEST_P(Conformance, LogitsOfChosenRowsOnly) {
  const TinyShape shape;
  const auto tokens = BorderTokens(shape.vocab);
  const TinyWeights weights(shape, 130, kSeed);
  TinyModel all(*backend_, weights, tokens, 1), some(*backend_, weights, tokens, 1);
  some.set_last_only(true);
  all.RunAlone(20);
  some.RunAlone(20);
  for (int seq = 0; seq < int(tokens.size()); ++seq) ExpectSameBits(all.logits(seq), some.logits(seq), "last only");
  EXPECT_TRUE(some.logits(7)[18].empty());
  EXPECT_FALSE(some.logits(7)[19].empty());
}

TEST_P(Conformance, VariantsAgree) {
  for (int t = 0; t < kNumDTypes; ++t) {
    TinyShape shape{.layers = 1, .hidden = 256, .ffn = 512, .type = DType(t)};
    shape.heads = 16;
    shape.kv_heads = 4;
    SCOPED_TRACE(shape.ToString());
    std::mt19937 token_rng(kSeed);
    const std::vector<std::vector<int32_t>> tokens = {RandomTokens(17, shape.vocab, token_rng),
                                                      RandomTokens(66, shape.vocab, token_rng)};
    const TinyWeights weights(shape, 130, kSeed);
    TinyModel first(*backend_, weights, tokens, 1);
    first.RunAlone(1000);
    for (const Variant& variant : GetParam().variants) {
      const std::unique_ptr<Backend> backend = Make(variant);
      EXPECT_EQ(backend->numerics_id(), backend_->numerics_id());
      std::mt19937 rng(kSeed);
      TinyModel other(*backend, weights, tokens, 2);
      other.RunMixed(rng);
      for (int seq = 0; seq < int(tokens.size()); ++seq) {
        ExpectSameBits(first.logits(seq), other.logits(seq), variant.name);
      }
    }
  }
}

TEST_P(Conformance, NearReferenceForEveryType) {
  for (int t = 0; t < kNumDTypes; ++t) {
    TinyShape shape{.hidden = 256, .heads = 16, .kv_heads = 4, .ffn = 256, .type = DType(t)};
    if (GetParam().rms_error > 0) shape.layers = 1;  // roundings grow from layer to layer, the more the less alike rows are
    ExpectNearReference(*backend_, GetParam().rms_error, shape, 10);
  }
}

TEST_P(Conformance, NearReferenceForEveryHeadShape) {
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
      ExpectNearReference(*backend_, GetParam().rms_error, shape, 67);
    }
  }
}

TEST_P(Conformance, NearReferenceForOddSizesAndOptions) {
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
      ExpectNearReference(*backend_, GetParam().rms_error, shape, 20);
    }
  }
}

TEST_P(Conformance, UnusedSlotsDoNotMatter) {
  if (!GetParam().host_memory) GTEST_SKIP() << "the pool is not host memory";
  for (int block_size : {16, 5}) {
    TinyShape shape;
    shape.block_size = block_size;
    const auto tokens = BorderTokens(shape.vocab);
    const TinyWeights weights(shape, 130, kSeed);
    TinyModel clean(*backend_, weights, tokens, 1), dirty(*backend_, weights, tokens, 1);
    for (int layer = 0; layer < shape.layers; ++layer) {  // all bits set: NaN in every float type
      std::memset(dirty.kv().layer_data(layer), 0xff,
                  size_t(dirty.kv().num_blocks()) * dirty.kv().layout().block_bytes());
    }
    clean.RunAlone(50);
    dirty.RunAlone(50);
    for (int seq = 0; seq < int(tokens.size()); ++seq)
      ExpectSameBits(clean.logits(seq), dirty.logits(seq), "NaN slots");
  }
}

TEST_P(Conformance, CopiedBlockServesAsWell) {
  const TinyShape shape;
  std::mt19937 rng(kSeed);
  const std::vector<std::vector<int32_t>> tokens = {RandomTokens(60, shape.vocab, rng)};
  const TinyWeights weights(shape, 130, kSeed);
  TinyModel plain(*backend_, weights, tokens, 1), copied(*backend_, weights, tokens, 1);
  plain.RunAlone(1000);
  copied.Step({{0, 40}});
  int spare = 0;  // the one block that no sequence has
  while (testing::Value(copied.blocks(0), testing::Contains(spare))) ++spare;
  copied.kv().CopyBlock(copied.blocks(0)[1], spare);
  copied.blocks(0)[1] = spare;
  copied.RunAlone(1000);
  ExpectSameBits(plain.logits(0), copied.logits(0), "copied block");
}

TEST_P(Conformance, RefusesWhatItCannotHold) {
  std::mt19937 rng(kSeed);
  const Matrix m = RandomMatrix(DType::kQ4_1, 2, 64, rng);
  HostTensor ragged = m.tensor();
  ragged.cols = 40;
  EXPECT_EQ(backend_->PackLinear(ragged).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend_->PackTable(HostTensor{}).status().code(), absl::StatusCode::kInvalidArgument);
  const KvLayout layout{1000, 1000, 1000, 1000, backend_->kv_dtype()};
  const auto pool = backend_->NewKvPool(layout, 1000);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pool.status().message()), testing::HasSubstr("bytes"));
  EXPECT_FALSE(backend_->NewContext({}).ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(ConformanceCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sluice::kernels::conformance
