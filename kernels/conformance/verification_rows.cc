// Rows that verify drafts: one step scores several tokens of a sequence, some do not hold, are rolled back and
// overwritten. What holds has the bits of decode rows; what did not leaves no trace.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

const TinyShape kShape{.layers = 2,
                       .hidden = 64,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = 16,
                       .rotary_dim = 16,
                       .ffn = 96,
                       .vocab = 37,
                       .type = DType::kQ8_0};

// Tokens that are not the sequence's.
std::vector<int32_t> Wrong(const std::vector<int32_t>& tokens, int begin, int count, int vocab) {
  std::vector<int32_t> wrong;
  for (int i = 0; i < count; ++i) {
    const size_t at = std::min(size_t(begin + i), tokens.size() - 1);
    wrong.push_back((tokens[at] + 1 + i) % vocab);
  }
  return wrong;
}

// One step scores 1 + k rows from `start` on, of which the first 1 + held hold.
void Verify(const Subject& subject, const Backend& backend, const TinyWeights& weights, const Expected& expected,
            int start, int k, int held) {
  const std::vector<int32_t>& tokens = expected.tokens[0];
  TinyModel model(backend, weights, {tokens}, uint32_t(start + 1));
  if (start > 0) model.Step({{0, start}});
  const std::vector<int32_t> wrong = Wrong(tokens, start + 1 + held, k - held, weights.shape.vocab);
  model.Step({{0, 1 + held, wrong}});
  // The rows that did not hold are right too, as those of another sequence.
  std::vector<int32_t> other(tokens.begin(), tokens.begin() + start + 1 + held);
  other.insert(other.end(), wrong.begin(), wrong.end());
  TinyModel fork(backend, weights, {other}, 77);
  fork.RunAlone(30);
  const std::string what = absl::StrCat(k, " drafts at ", start, ", ", held, " hold");
  const Logits& of_fork = fork.logits(0);
  const Logits tail(of_fork.end() - int64_t(wrong.size()), of_fork.end());
  ExpectSameLogits(subject, tail, model.draft_logits(0), what + ", the other rows");
  model.Step({{0, 1}});
  model.RunAlone(64);
  ExpectSame(subject, expected, model, what);
}

void AnyNumberHolds(const Subject& subject) {
  Backends backends(subject);
  struct Setting {
    int block_size;
    std::vector<int> starts;  // at borders of blocks and tiles
  };
  for (const auto& [block_size, starts] : {Setting{16, {0, 14, 15, 63, 64}}, Setting{5, {4}}}) {
    TinyShape shape = kShape;
    shape.block_size = block_size;
    const TinyWeights weights(shape, 150, kSeed);
    std::mt19937 rng(kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights, {RandomTokens(80, shape.vocab, rng)});
    for (const int start : starts) {
      for (const int k : {1, 4}) {
        for (int held = 0; held <= k; ++held) {
          Verify(subject, backends.first(), weights, expected, start, k, held);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// Every step of a sequence verifies, beside decode rows, chunks and other sequences that verify.
void BesideOthers(const Subject& subject) {
  Backends backends(subject);
  for (const TinyShape& shape : Shapes()) {
    SCOPED_TRACE(shape.ToString());
    const TinyWeights weights(shape, 150, kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights, BorderTokens(shape.vocab));
    for (uint32_t seed = 10; seed < 13; ++seed) {
      std::mt19937 rng(seed);
      TinyModel model(backends.next(), weights, expected.tokens, seed);
      model.RunMixed(rng, /*drafts=*/true);
      if (!ExpectSame(subject, expected, model, absl::StrCat("drafts in random steps of seed ", seed))) return;
    }
  }
}

// A block that only rolled-back rows wrote to goes to another sequence, and the first one gets another in its place.
void ABlockOfDraftsGoesToAnother(const Subject& subject) {
  Backends backends(subject);
  const TinyWeights weights(kShape, 150, kSeed);
  std::mt19937 rng(kSeed);
  const Expected expected = DecodeAlone(
      subject, backends.first(), weights,
      {RandomTokens(40, kShape.vocab, rng), RandomTokens(40, kShape.vocab, rng), RandomTokens(33, kShape.vocab, rng)});
  TinyModel model(backends.next(), weights, expected.tokens, 3);
  model.Step({{0, 15}, {1, 20}, {2, 10}});
  model.Step({{0, 1, Wrong(expected.tokens[0], 16, 5, kShape.vocab)}, {2, 3}});  // the five lie in block 1
  std::swap(model.blocks(0)[1], model.blocks(1)[2]);                             // neither holds anything now
  while (model.left(0) + model.left(1) + model.left(2) > 0) {
    std::vector<Piece> pieces;
    for (int seq : {1, 0, 2}) {
      if (model.left(seq) > 0) pieces.push_back({seq, std::min(model.left(seq), 1 + seq * 2)});
    }
    model.Step(pieces);
  }
  ExpectSame(subject, expected, model, "after the exchange of blocks");
}

}  // namespace

std::vector<Check> VerificationRowChecks() {
  return {{"VerificationRows", "AnyNumberHolds", AnyNumberHolds},
          {"VerificationRows", "BesideOthers", BesideOthers},
          {"VerificationRows", "ABlockOfDraftsGoesToAnother", ABlockOfDraftsGoesToAnother}};
}

}  // namespace sluice::kernels::conformance
