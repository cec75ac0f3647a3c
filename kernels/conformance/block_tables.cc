// Where a block lies in the pool does not matter, nor what lies in slots that nothing has written, nor what a table
// holds past the context.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

void AnyOrder(const Subject& subject) {
  Backends backends(subject);
  for (const TinyShape& shape : Shapes()) {
    SCOPED_TRACE(shape.ToString());
    const TinyWeights weights(shape, 150, kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights, BorderTokens(shape.vocab));
    for (const int order : {0, 1, 2, 3}) {
      TinyModel model(backends.first(), weights, expected.tokens, uint32_t(30 + order));
      for (int seq = 0; seq < model.num_seqs() && order < 2; ++seq) {
        std::sort(model.blocks(seq).begin(), model.blocks(seq).end());
        if (order == 1) std::reverse(model.blocks(seq).begin(), model.blocks(seq).end());
      }
      model.RunAlone(20);
      const char* const names[] = {"ascending", "descending", "shuffled", "shuffled otherwise"};
      if (!ExpectSame(subject, expected, model, absl::StrCat(names[order], " blocks"))) return;
    }
  }
}

void EntriesPastTheContextAreIgnored(const Subject& subject) {
  Backends backends(subject);
  const TinyShape shape;
  const TinyWeights weights(shape, 150, kSeed);
  const Expected expected = DecodeAlone(subject, backends.first(), weights, BorderTokens(shape.vocab));
  for (const int32_t junk : {-1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    std::mt19937 rng(kSeed);
    TinyModel model(backends.next(), weights, expected.tokens, 6);
    model.set_unused_entries(junk);
    model.RunMixed(rng, /*drafts=*/false);
    if (!ExpectSame(subject, expected, model, absl::StrCat("unused entries of ", junk))) return;
  }
}

void UnusedSlotsDoNotMatter(const Subject& subject) {
  Backends backends(subject);
  for (const int block_size : {16, 5}) {
    TinyShape shape;
    shape.block_size = block_size;
    const TinyWeights weights(shape, 150, kSeed);
    const Expected expected = DecodeAlone(subject, backends.first(), weights, BorderTokens(shape.vocab));
    TinyModel model(backends.first(), weights, expected.tokens, 1);
    const size_t bytes = size_t(model.kv().num_blocks()) * model.kv().layout().block_bytes();
    const std::vector<uint8_t> nan(bytes, 0xff);  // all bits set: NaN in every float type
    for (int layer = 0; layer < shape.layers; ++layer) {
      subject.write(model.kv().layer_data(layer), nan.data(), bytes);
    }
    model.RunAlone(50);
    if (!ExpectSame(subject, expected, model, "NaN in unused slots")) return;
  }
}

}  // namespace

std::vector<Check> BlockTableChecks() {
  return {{"BlockTables", "AnyOrder", AnyOrder},
          {"BlockTables", "EntriesPastTheContextAreIgnored", EntriesPastTheContextAreIgnored},
          {"BlockTables", "UnusedSlotsDoNotMatter", UnusedSlotsDoNotMatter}};
}

}  // namespace sluice::kernels::conformance
