#include "engine/token_counts.h"

#include <glog/logging.h>

namespace sluice::engine {

void TokenCounts::CatchUp(std::span<const int32_t> tokens, int num_prompt_tokens) {
  CHECK_LE(size_t(counted_), tokens.size());
  for (; counted_ < int(tokens.size()); ++counted_) {
    int& count = occurrences_[tokens[counted_]];
    if (counted_ >= num_prompt_tokens) ++count;
  }
}

void TokenCounts::Add(int32_t token) {
  ++occurrences_[token];
  ++counted_;
}

}  // namespace sluice::engine
