// Warm as cold: a sequence that reads blocks which another one wrote, or a copy of them, gets the bits of one that
// computed everything itself.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

// Sequence 0, and others that begin with whole blocks of it and go on with tokens of their own.
std::vector<std::vector<int32_t>> WithPrefixes(const TinyShape& shape) {
  std::mt19937 rng(kSeed);
  std::vector<std::vector<int32_t>> all = {RandomTokens(100, shape.vocab, rng)};
  for (int blocks = 1; blocks * shape.block_size < 100; blocks += shape.block_size < 16 ? 4 : 1) {
    std::vector<int32_t> tokens(all[0].begin(), all[0].begin() + blocks * shape.block_size);
    const std::vector<int32_t> own = RandomTokens(1 + blocks * 7 % 40, shape.vocab, rng);
    tokens.insert(tokens.end(), own.begin(), own.end());
    all.push_back(std::move(tokens));
  }
  return all;
}

void ShareAll(TinyModel& model, const TinyShape& shape) {
  for (int seq = 1; seq < model.num_seqs(); ++seq) {
    model.Share(seq, 0, 1 + (seq - 1) * (shape.block_size < 16 ? 4 : 1));
  }
}

void BlocksOfAnother(const Subject& subject) {
  Backends backends(subject);
  for (const TinyShape& shape : Shapes()) {
    SCOPED_TRACE(shape.ToString());
    const TinyWeights weights(shape, 150, kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights, WithPrefixes(shape));
    for (const int chunk : {1, 7, 512}) {
      TinyModel model(backends.first(), weights, expected.tokens, 4);
      while (model.left(0) > 0) model.Step({{0, std::min(33, model.left(0))}});
      ShareAll(model, shape);
      model.RunAlone(chunk);
      if (!ExpectSame(subject, expected, model, absl::StrCat("shared blocks, chunks of ", chunk))) return;
    }
  }
}

// All of them in the same steps, while the one that wrote the blocks goes on.
void ManyReadersAtOnce(const Subject& subject) {
  Backends backends(subject);
  const TinyShape shape = Shapes()[0];
  const TinyWeights weights(shape, 150, kSeed);
  const Expected expected = DecodeAlone(subject, backends.first(), weights, WithPrefixes(shape));
  for (uint32_t seed = 20; seed < 24; ++seed) {
    std::mt19937 rng(seed);
    TinyModel model(backends.next(), weights, expected.tokens, seed);
    model.Step({{0, 98}});
    ShareAll(model, shape);
    model.RunMixed(rng, /*drafts=*/true);
    if (!ExpectSame(subject, expected, model, absl::StrCat("readers at once, seed ", seed))) return;
  }
}

// Copy on write: the copy serves one sequence while the other goes on in the block that it came from.
void ACopyServesAsWell(const Subject& subject) {
  Backends backends(subject);
  const TinyShape shape;
  const TinyWeights weights(shape, 150, kSeed);
  std::mt19937 rng(kSeed);
  std::vector<std::vector<int32_t>> tokens = {RandomTokens(60, shape.vocab, rng)};
  tokens.push_back(tokens[0]);
  for (size_t i = 40; i < 60; ++i) tokens[1][i] = (tokens[1][i] + 1) % shape.vocab;  // parts in the middle of a block
  const Expected expected = DecodeAlone(subject, backends.first(), weights, tokens);
  TinyModel model(backends.next(), weights, tokens, 1);
  model.Step({{0, 40}});
  const std::vector<int32_t> own = model.blocks(1);
  model.Share(1, 0, 3, 40);
  ASSERT_TRUE(model.kv().CopyBlock(model.blocks(0)[2], own[2]).ok());
  model.blocks(1)[2] = own[2];
  while (model.left(0) > 0) model.Step({{1, 1}, {0, 1}});
  ExpectSame(subject, expected, model, "copied block");
}

}  // namespace

std::vector<Check> SharedBlockChecks() {
  return {{"SharedBlocks", "BlocksOfAnother", BlocksOfAnother},
          {"SharedBlocks", "ManyReadersAtOnce", ManyReadersAtOnce},
          {"SharedBlocks", "ACopyServesAsWell", ACopyServesAsWell}};
}

}  // namespace sluice::kernels::conformance
