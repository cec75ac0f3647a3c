#include "engine/speculation/prompt_lookup.h"

#include <algorithm>

namespace sluice::engine {

std::vector<int32_t> PromptLookup::Draft(std::span<const int32_t> tokens, int limit) {
  const int size = int(tokens.size());
  const int count = std::min(limit, length_.Next(size));
  if (count <= 0) return {};
  const NgramIndex::Match match = index_.Find(tokens);
  if (match.next < 0) return {};
  // A match that reaches the end of the text goes on into its own drafts: a loop repeats itself.
  std::vector<int32_t> drafts;
  drafts.reserve(count);
  for (int i = match.next; int(drafts.size()) < count; ++i) drafts.push_back(i < size ? tokens[i] : drafts[i - size]);
  return drafts;
}

}  // namespace sluice::engine
