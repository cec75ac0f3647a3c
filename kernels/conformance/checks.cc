#include "kernels/conformance/checks.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace sluice::kernels::conformance {

Backends::Backends(const Subject& subject) {
  for (const Variant& variant : subject.variants) {
    auto made = variant.make();
    CHECK(made.ok()) << variant.name << ": " << made.status();
    made_.push_back(*std::move(made));
  }
  CHECK(!made_.empty()) << subject.name << " has no variants";
}

std::vector<int32_t> RandomTokens(int count, int vocab, std::mt19937& rng) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(int32_t(rng() % uint32_t(vocab)));
  return tokens;
}

std::vector<std::vector<int32_t>> BorderTokens(int vocab) {
  std::mt19937 rng(kSeed);
  std::vector<std::vector<int32_t>> all;
  for (int n : {1, 15, 16, 17, 63, 64, 65, 130}) all.push_back(RandomTokens(n, vocab, rng));
  return all;
}

std::vector<TinyShape> Shapes() {
  return {
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
}

Expected DecodeAlone(const Subject& subject, const Backend& backend, const TinyWeights& weights,
                     std::vector<std::vector<int32_t>> tokens) {
  TinyModel model(backend, weights, tokens, 1);
  model.RunAlone(1);
  Expected expected;
  for (int seq = 0; seq < int(tokens.size()); ++seq) {
    expected.logits.push_back(model.logits(seq));
    expected.kv.push_back(model.ReadFullBlocks(seq, subject.read));
  }
  expected.tokens = std::move(tokens);
  return expected;
}

namespace {

bool ExpectNearLogits(double batch_error, const Logits& expected, const Logits& got, const std::string& what) {
  double squares = 0, errors = 0;
  for (size_t i = 0; i < expected.size() && i < got.size(); ++i) {
    if (expected[i].empty() || got[i].empty()) continue;
    for (size_t n = 0; n < expected[i].size(); ++n) {
      const double error = double(got[i][n]) - double(expected[i][n]);
      errors += error * error;
      squares += double(expected[i][n]) * double(expected[i][n]);
    }
  }
  const double share = squares > 0 ? std::sqrt(errors / squares) : 0;
  if (share <= batch_error) return true;  // not where anything is no number
  ADD_FAILURE() << what << ": logits are off by " << share << " of theirs";
  return false;
}

}  // namespace

bool ExpectSameLogits(const Subject& subject, const Logits& expected, const Logits& got, const std::string& what) {
  if (subject.batch_error > 0) return ExpectNearLogits(subject.batch_error, expected, got, what);
  for (size_t i = 0; i < expected.size() && i < got.size(); ++i) {
    if (expected[i].empty() || got[i].empty()) continue;
    if (std::memcmp(expected[i].data(), got[i].data(), expected[i].size() * sizeof(float)) == 0) continue;
    size_t n = 0;
    while (std::memcmp(&expected[i][n], &got[i][n], sizeof(float)) == 0) ++n;
    ADD_FAILURE() << what << ": logit " << n << " of position " << i << " is " << got[i][n] << " instead of "
                  << expected[i][n];
    return false;
  }
  return true;
}

bool ExpectSame(const Subject& subject, const Expected& expected, TinyModel& model, const std::string& what) {
  for (int seq = 0; seq < model.num_seqs(); ++seq) {
    const std::string of = absl::StrCat(what, ", sequence ", seq);
    if (!ExpectSameLogits(subject, expected.logits[size_t(seq)], model.logits(seq), of)) return false;
    if (subject.batch_error > 0) continue;
    const std::vector<uint8_t>& a = expected.kv[size_t(seq)];
    const std::vector<uint8_t> b = model.ReadFullBlocks(seq, subject.read);
    if (a == b) continue;
    size_t n = 0;
    while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
    const KvLayout& layout = model.kv().layout();
    ADD_FAILURE() << of << ": block " << n / layout.block_bytes_all_layers() << " of the sequence holds other bytes";
    return false;
  }
  return true;
}

}  // namespace sluice::kernels::conformance
