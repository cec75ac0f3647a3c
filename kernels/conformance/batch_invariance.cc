// A row's bits depend on the row and its keys alone: not on how many rows and sequences are beside it, on their order,
// or on the cut into chunks. Everything is compared with decode rows computed alone.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

const TinyShape kSmall{.hidden = 64,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = 16,
                       .rotary_dim = 16,
                       .ffn = 96,
                       .vocab = 37,
                       .type = DType::kQ8_0};

// 64 sequences: one longer than the largest chunk, the rest around the borders of blocks and tiles.
std::vector<std::vector<int32_t>> ManyTokens() {
  std::mt19937 rng(kSeed);
  std::vector<std::vector<int32_t>> all = {RandomTokens(530, kSmall.vocab, rng)};
  const int lengths[] = {1, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100};
  while (all.size() < 64) all.push_back(RandomTokens(lengths[all.size() % 11], kSmall.vocab, rng));
  return all;
}

// Steps of the next `chunk` tokens of every sequence, in an order that changes.
void RunTogether(TinyModel& model, int chunk, std::mt19937& rng) {
  for (;;) {
    std::vector<Piece> pieces;
    for (int seq = 0; seq < model.num_seqs(); ++seq) {
      if (model.left(seq) > 0) pieces.push_back({seq, std::min(chunk, model.left(seq))});
    }
    if (pieces.empty()) return;
    std::shuffle(pieces.begin(), pieces.end(), rng);
    model.Step(pieces);
  }
}

void BatchTimesChunk(const Subject& subject) {
  Backends backends(subject);
  const TinyWeights weights(kSmall, 600, kSeed);
  const Expected all = DecodeAlone(subject, backends.first(), weights, ManyTokens());
  for (const int batch : {1, 3, 64}) {
    Expected expected = all;
    expected.tokens.resize(size_t(batch));
    for (const int chunk : {7, 16, 33, 512}) {
      std::mt19937 rng(kSeed + uint32_t(batch * 1000 + chunk));
      TinyModel model(backends.next(), weights, expected.tokens, rng());
      RunTogether(model, chunk, rng);
      if (!ExpectSame(subject, expected, model, absl::StrCat("batch ", batch, ", chunk ", chunk))) return;
    }
  }
}

// Decode rows only, as many as there are sequences that have not ended.
void DecodeTogether(const Subject& subject) {
  Backends backends(subject);
  const TinyWeights weights(kSmall, 600, kSeed);
  std::vector<std::vector<int32_t>> tokens = ManyTokens();
  tokens.erase(tokens.begin());
  const Expected expected = DecodeAlone(subject, backends.first(), weights, tokens);
  std::mt19937 rng(kSeed);
  TinyModel model(backends.next(), weights, tokens, 7);
  RunTogether(model, 1, rng);
  ExpectSame(subject, expected, model, "decode rows together");
}

// Few sequences of lengths that differ much: how a backend shares out so few and so unequal rows must not be seen.
// Every variant takes single rows, then a few, around the lengths where it may cut a context.
void FewLongContexts(const Subject& subject) {
  Backends backends(subject);
  const TinyWeights weights(kSmall, 1040, kSeed);
  std::mt19937 rng(kSeed);
  const std::vector<std::vector<int32_t>> tokens = {
      RandomTokens(1030, kSmall.vocab, rng), RandomTokens(520, kSmall.vocab, rng), RandomTokens(20, kSmall.vocab, rng)};
  for (const size_t seqs : {size_t{1}, size_t{2}, tokens.size()}) {
    const Expected expected =
        DecodeAlone(subject, backends.first(), weights, {tokens.begin(), tokens.begin() + int64_t(seqs)});
    for (const Variant& variant : subject.variants) {
      TinyModel model(backends.next(), weights, expected.tokens, uint32_t(seqs));
      for (int step = 0;; ++step) {
        std::vector<Piece> pieces;
        for (int seq = 0; seq < model.num_seqs(); ++seq) {
          const int done = int(expected.tokens[size_t(seq)].size()) - model.left(seq);
          const int to_border = 256 - (done + 4) % 256;  // four rows before a border singles begin, for eight rows
          const int count = to_border > 248 ? 1 : step % 3 == 2 ? 3 : std::min(to_border, 120);
          if (model.left(seq) > 0) pieces.push_back({seq, std::min(count, model.left(seq))});
        }
        if (pieces.empty()) break;
        model.Step(pieces);
      }
      if (!ExpectSame(subject, expected, model, absl::StrCat(seqs, " long contexts, ", variant.name))) return;
    }
  }
}

// A batch in which some decode while the prompts of others come in, one after the other.
void DecodeRowsBesideChunks(const Subject& subject) {
  Backends backends(subject);
  const TinyWeights weights(kSmall, 600, kSeed);
  std::vector<std::vector<int32_t>> tokens = ManyTokens();
  tokens.resize(12);
  const Expected expected = DecodeAlone(subject, backends.first(), weights, tokens);
  for (const int chunk : {7, 64, 512}) {
    TinyModel model(backends.next(), weights, tokens, 5);
    for (int arriving = 0; arriving < model.num_seqs(); ++arriving) {
      while (model.left(arriving) > 0) {
        std::vector<Piece> pieces = {{arriving, std::min(chunk, (model.left(arriving) + 1) / 2)}};
        for (int seq = arriving + 1; seq < model.num_seqs(); ++seq) {
          if (model.left(seq) > 1) pieces.push_back({seq, 1});
        }
        std::rotate(pieces.begin(), pieces.begin() + arriving % int(pieces.size()), pieces.end());
        model.Step(pieces);
      }
    }
    if (!ExpectSame(subject, expected, model, absl::StrCat("beside chunks of ", chunk))) return;
  }
}

void AloneInAnyChunks(const Subject& subject) {
  Backends backends(subject);
  for (const TinyShape& shape : Shapes()) {
    SCOPED_TRACE(shape.ToString());
    const TinyWeights weights(shape, 150, kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights, BorderTokens(shape.vocab));
    for (const int chunk : {1000, 64, 33, 16, 7, 2}) {
      TinyModel model(backends.first(), weights, expected.tokens, 2);
      model.RunAlone(chunk);
      if (!ExpectSame(subject, expected, model, absl::StrCat("chunks of ", chunk))) return;
    }
  }
}

void RandomSteps(const Subject& subject) {
  Backends backends(subject);
  for (const TinyShape& shape : Shapes()) {
    SCOPED_TRACE(shape.ToString());
    const TinyWeights weights(shape, 150, kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights, BorderTokens(shape.vocab));
    for (uint32_t seed = 3; seed < 8; ++seed) {
      std::mt19937 rng(seed);
      TinyModel model(backends.next(), weights, expected.tokens, seed);
      model.RunMixed(rng, /*drafts=*/false);
      if (!ExpectSame(subject, expected, model, absl::StrCat("random steps of seed ", seed))) return;
    }
  }
}

}  // namespace

std::vector<Check> BatchInvarianceChecks() {
  return {{"BatchInvariance", "BatchTimesChunk", BatchTimesChunk},
          {"BatchInvariance", "DecodeTogether", DecodeTogether},
          {"BatchInvariance", "FewLongContexts", FewLongContexts},
          {"BatchInvariance", "DecodeRowsBesideChunks", DecodeRowsBesideChunks},
          {"BatchInvariance", "AloneInAnyChunks", AloneInAnyChunks},
          {"BatchInvariance", "RandomSteps", RandomSteps}};
}

}  // namespace sluice::kernels::conformance
