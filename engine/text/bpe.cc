#include "engine/text/bpe.h"

#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/byte_alphabet.h"

namespace sluice::engine {
namespace {

// Debian's Abseil has a string_view of its own.
absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// A linked list over the positions of a word: merging puts the result in the left symbol's place and unlinks the right.
struct Bpe::Symbol {
  int32_t id;  // -1: merged away
  int32_t previous;
  int32_t next;  // -1: none
};

// A pair that could be merged. It is stale when the symbols at its place have changed since.
struct Bpe::Candidate {
  uint32_t rank;
  int32_t at;
  int32_t left;
  int32_t right;
  int32_t result;

  bool operator>(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
};

absl::StatusOr<Bpe> Bpe::Create(Vocabulary vocabulary, absl::Span<const std::string> merges, bool ignore_merges) {
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = vocabulary.find(absl::string_view(&c, 1));
    bpe.byte_ids_[byte] = found == vocabulary.end() ? -1 : found->second;
  }
  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    if (absl::Status status = bpe.AddMerge(vocabulary, merges[rank], static_cast<uint32_t>(rank)); !status.ok()) {
      return status;
    }
  }
  if (!ignore_merges) {
    std::vector<int32_t> ids;
    absl::erase_if(vocabulary, [&](const Vocabulary::value_type& token) {
      ids.clear();
      bpe.MergeWord(token.first, ids);
      return ids != std::vector<int32_t>{token.second};
    });
  }
  bpe.whole_words_ = std::move(vocabulary);
  return bpe;
}

absl::Status Bpe::AddMerge(const Vocabulary& vocabulary, std::string_view merge, uint32_t rank) {
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("merge ", rank, " \"", View(merge), "\" (tokenizer.ggml.merges): ", what));
  };
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string_view::npos) {
    return error("not two tokens with a space between them");
  }
  const std::string_view sides[] = {merge.substr(0, space), merge.substr(space + 1)};
  std::string bytes[2];
  int32_t ids[2];
  for (int i = 0; i < 2; ++i) {
    std::optional<std::string> side = BytesFromSpelling(sides[i]);
    const auto found = side.has_value() ? vocabulary.find(*side) : vocabulary.end();
    if (found == vocabulary.end()) return error(absl::StrCat("\"", View(sides[i]), "\" is not a token"));
    bytes[i] = *std::move(side);
    ids[i] = found->second;
  }
  const auto result = vocabulary.find(bytes[0] + bytes[1]);
  if (result == vocabulary.end()) return error("its result is not a token");
  merges_[PairKey(ids[0], ids[1])] = {rank, result->second};  // named twice: the later rank counts, as in the reference
  return absl::OkStatus();
}

const Bpe::Merge* Bpe::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (const auto found = whole_words_.find(View(word)); found != whole_words_.end()) {
    ids.push_back(found->second);
  } else {
    MergeWord(word, ids);
  }
}

void Bpe::MergeWord(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) continue;
    const auto at = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(), std::move(storage));
  const auto consider = [&](int32_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    const int32_t left = symbols[at].id;
    const int32_t right = symbols[symbols[at].next].id;
    if (const Merge* merge = FindMerge(left, right)) queue.push({merge->rank, at, left, right, merge->id});
  };
  for (size_t at = 0; at < symbols.size(); ++at) consider(static_cast<int32_t>(at));

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;
    Symbol& right = symbols[left.next];
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = best.at;
    consider(left.previous);
    consider(best.at);
  }
  for (int32_t at = 0; at >= 0; at = symbols[at].next) ids.push_back(symbols[at].id);
}

}  // namespace sluice::engine
