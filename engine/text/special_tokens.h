// Finds the names of special tokens in text: leftmost first, longest among those that start at the same place.
//
// Promises: time is linear in the text times the longest name that the text keeps beginning; text without the names'
// first bytes is skipped at the speed of a table look-up.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

namespace sluice::engine {

class SpecialTokens {
 public:
  // Names are not empty; a name that is there already keeps its id and false is returned.
  bool Add(std::string_view name, int32_t id);

  struct Match {
    size_t begin;
    size_t length;
    int32_t id;
  };
  // The first name at or after `from`.
  std::optional<Match> Find(std::string_view text, size_t from) const;
  // The first that is accepted: leftmost, then longest among the accepted ones.
  std::optional<Match> Find(std::string_view text, size_t from, absl::FunctionRef<bool(const Match&)> accept) const;

 private:
  // A trie. Node 0 is the root; edges are keyed by node << 8 | byte.
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  absl::flat_hash_map<uint32_t, int32_t> ids_;  // of the names that end at a node
  std::array<bool, 256> begins_{};              // whether a name begins with this byte
  uint32_t num_nodes_ = 1;
};

}  // namespace sluice::engine
