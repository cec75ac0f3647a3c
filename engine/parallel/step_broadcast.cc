#include "engine/parallel/step_broadcast.h"

#include <algorithm>
#include <cstring>

#include "glog/logging.h"

namespace sluice::engine {
namespace {

// A message is a header of so many words and then the arrays that it gives the lengths of, one after the other.
enum HeaderWord {
  kTokens,
  kRowBegin,
  kContextLen,
  kBlockTable,
  kLogitRows,
  kCopies,
  kMaxBlocks,
  kByLayer,
  kStop,
  kHeaderWords
};

// The arrays of a step and the words of their lengths, in order.
template <class Inputs, class Fn>
void EachArray(Inputs& in, Fn fn) {
  fn(kTokens, in.tokens);
  fn(kRowBegin, in.row_begin);
  fn(kContextLen, in.context_len);
  fn(kBlockTable, in.block_table);
  fn(kLogitRows, in.logit_rows);
}

}  // namespace

// Words travel as the columns of rank 0; the collective only copies them, whatever they are as numbers.
absl::Status StepBroadcast::Exchange(std::vector<int32_t>& words) {
  if (words.empty()) return absl::OkStatus();
  constexpr size_t kPiece = 4096;  // words of an exchange: a row of that many columns
  std::vector<float> row(kPiece);
  for (size_t at = 0; at < words.size(); at += kPiece) {
    const int64_t count = int64_t(std::min(kPiece, words.size() - at));
    std::vector<int64_t> borders(size_t(collective_->size()) + 1, count);
    borders[0] = 0;
    std::memcpy(row.data(), words.data() + at, size_t(count) * sizeof(int32_t));
    const absl::Status done = collective_->Gather(row.data(), count, 1, borders, kernels::Collective::To::kAll);
    if (!done.ok()) return done;
    std::memcpy(words.data() + at, row.data(), size_t(count) * sizeof(int32_t));
  }
  return absl::OkStatus();
}

absl::Status StepBroadcast::Send(const StepInputs& inputs, std::span<const BlockCopy> copies, bool by_layer) {
  CHECK_EQ(collective_->rank(), 0);
  std::vector<int32_t> header(kHeaderWords, 0), words;
  header[kMaxBlocks] = inputs.max_blocks;
  header[kByLayer] = by_layer ? 1 : 0;
  EachArray(inputs, [&](HeaderWord which, const std::vector<int32_t>& array) {
    header[which] = int32_t(array.size());
    words.insert(words.end(), array.begin(), array.end());
  });
  header[kCopies] = int32_t(copies.size());
  for (const BlockCopy& copy : copies) words.insert(words.end(), {copy.from, copy.to});
  if (absl::Status sent = Exchange(header); !sent.ok()) return sent;
  return Exchange(words);
}

absl::Status StepBroadcast::SendStop() {
  std::vector<int32_t> header(kHeaderWords, 0);
  header[kStop] = 1;
  return Exchange(header);
}

absl::StatusOr<std::optional<FollowedStep>> StepBroadcast::Receive() {
  CHECK_NE(collective_->rank(), 0);
  std::vector<int32_t> header(kHeaderWords, 0);
  if (absl::Status got = Exchange(header); !got.ok()) return got;
  if (header[kStop] != 0) return std::nullopt;
  FollowedStep step;
  StepInputs& inputs = step.inputs;
  inputs.max_blocks = header[kMaxBlocks];
  step.by_layer = header[kByLayer] != 0;
  size_t size = 0;
  EachArray(inputs, [&](HeaderWord which, std::vector<int32_t>& array) {
    array.resize(size_t(header[which]));
    size += array.size();
  });
  std::vector<int32_t> words(size + 2 * size_t(header[kCopies]));
  if (absl::Status got = Exchange(words); !got.ok()) return got;
  auto from = words.begin();
  EachArray(inputs, [&](HeaderWord, std::vector<int32_t>& array) {
    std::copy_n(from, array.size(), array.begin());
    from += std::ptrdiff_t(array.size());
  });
  for (; from != words.end(); from += 2) step.copies.push_back({from[0], from[1]});
  return step;
}

}  // namespace sluice::engine
