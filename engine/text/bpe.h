// Merges the bytes of one word into tokens, best-ranked pair first, leftmost among equals.
//
// Promises: the tokens' bytes concatenate to the word, except for bytes that no token stands for, which are left out
// before merging, as the reference does (a vocabulary with all 256 bytes loses nothing). Time is O(n log n) in the
// word's length. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sluice::engine {

class Bpe {
 public:
  using Vocabulary = absl::flat_hash_map<std::string, int32_t>;  // raw bytes -> id

  // merges: "left right" in the byte alphabet, best first. INVALID_ARGUMENT, naming the merge, where a side or the
  // result is not in the vocabulary. ignore_merges: a word that is a token is that token.
  static absl::StatusOr<Bpe> Create(Vocabulary vocabulary, absl::Span<const std::string> merges, bool ignore_merges);

  // Appends the tokens of `word` to `ids`.
  void Encode(std::string_view word, std::vector<int32_t>& ids) const;

  bool HasByte(uint8_t byte) const { return byte_ids_[byte] >= 0; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;  // of the result
  };
  struct Symbol;
  struct Candidate;

  Bpe() = default;
  absl::Status AddMerge(const Vocabulary& vocabulary, std::string_view merge, uint32_t rank);
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void MergeWord(std::string_view word, std::vector<int32_t>& ids) const;

  absl::flat_hash_map<uint64_t, Merge> merges_;  // by left id << 32 | right id
  std::array<int32_t, 256> byte_ids_;            // -1: no token stands for this byte alone

  // Words that come out as one token. Most of a text is such words; they need no merging.
  Vocabulary whole_words_;
};

}  // namespace sluice::engine
