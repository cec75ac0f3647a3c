#include "engine/speculation/ngram_index.h"

#include <glog/logging.h>

#include <algorithm>

namespace sluice::engine {
namespace {

// Of the last `count` tokens, shorter suffixes first: a running hash from the end backwards.
class SuffixHash {
 public:
  explicit SuffixHash(std::span<const int32_t> tokens) : tokens_(tokens) {}

  uint64_t Extend() {
    hash_ ^= uint32_t(tokens_[tokens_.size() - ++length_]);
    hash_ *= 0x9E3779B97F4A7C15;
    hash_ ^= hash_ >> 29;
    hash_ *= 0xBF58476D1CE4E5B9;
    hash_ ^= hash_ >> 32;
    return hash_ + uint64_t(length_);
  }

 private:
  std::span<const int32_t> tokens_;
  size_t length_ = 0;
  uint64_t hash_ = 0x243F6A8885A308D3;
};

}  // namespace

NgramIndex::NgramIndex(int min_tokens, int max_tokens) : min_tokens_(min_tokens), max_tokens_(max_tokens) {
  CHECK(1 <= min_tokens && min_tokens <= max_tokens);
}

NgramIndex::Match NgramIndex::Find(std::span<const int32_t> tokens) {
  const int size = int(tokens.size());
  CHECK_LE(indexed_, size);
  for (; indexed_ + 1 < size; ++indexed_) {  // the suffix itself stays out
    const int end = indexed_ + 1;
    SuffixHash hash(tokens.first(end));
    for (int n = 1; n <= std::min(max_tokens_, end); ++n) {
      const uint64_t h = hash.Extend();
      if (n >= min_tokens_) newest_[h] = end;
    }
  }
  Match match;
  SuffixHash hash(tokens);
  for (int n = 1; n <= std::min(max_tokens_, size - 1); ++n) {
    const uint64_t h = hash.Extend();
    if (n < min_tokens_) continue;
    const auto found = newest_.find(h);
    if (found == newest_.end()) break;  // a longer suffix did not occur either
    const int end = found->second;
    if (end >= n && std::equal(tokens.end() - n, tokens.end(), tokens.begin() + (end - n))) match = {end, n};
  }
  return match;
}

}  // namespace sluice::engine
