// Logits are computed of the rows that are asked for, and theirs do not depend on which others are.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

void OfAnyRows(const Subject& subject) {
  Backends backends(subject);
  const TinyShape shape;
  const TinyWeights weights(shape, 150, kSeed);
  const Expected expected = DecodeAlone(subject, backends.first(), weights, BorderTokens(shape.vocab));
  struct Choice {
    const char* name;
    bool (*wanted)(int seq, int position);
  };
  const Choice choices[] = {
      {"none", [](int, int) { return false; }},
      {"the last of each chunk", [](int, int position) { return position % 20 == 19; }},
      {"the first of each chunk", [](int, int position) { return position % 20 == 0; }},
      {"every third", [](int seq, int position) { return (seq + position) % 3 == 0; }},
      {"one sequence", [](int seq, int) { return seq == 5; }},
  };
  for (const Choice& choice : choices) {
    std::mt19937 rng(kSeed);
    TinyModel alone(backends.first(), weights, expected.tokens, 1), mixed(backends.next(), weights, expected.tokens, 2);
    alone.set_wanted(choice.wanted);
    mixed.set_wanted(choice.wanted);
    alone.RunAlone(20);
    mixed.RunMixed(rng, /*drafts=*/true);
    for (TinyModel* model : {&alone, &mixed}) {
      if (!ExpectSame(subject, expected, *model, absl::StrCat("logits of ", choice.name))) return;
      for (int seq = 0; seq < model->num_seqs(); ++seq) {
        for (size_t i = 0; i < model->logits(seq).size(); ++i) {
          ASSERT_EQ(model->logits(seq)[i].empty(), !choice.wanted(seq, int(i))) << "the check itself is broken";
        }
      }
    }
  }
}

}  // namespace

std::vector<Check> HeadRowChecks() {
  return {{"HeadRows", "OfAnyRows", OfAnyRows}};
}

}  // namespace sluice::kernels::conformance
