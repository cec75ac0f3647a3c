// Limits of sampling parameters that router and workers both hold: the router refuses by name, and a worker does too,
// should another router ask.
#pragma once

#include <cstdint>

namespace sluice {

inline constexpr int kMaxChoices = 16;         // sampling.n
inline constexpr int kMaxPromptLogprobs = 20;  // sampling.prompt_logprobs: alternatives of each prompt token

// What one answer may say of its prompt: prompt tokens x (1 + alternatives). Some twelve bytes each on a Work stream.
inline constexpr int64_t kMaxPromptEntries = int64_t{1} << 20;

inline int64_t PromptEntries(int64_t prompt_tokens, int64_t alternatives) {
  return prompt_tokens * (1 + alternatives);
}

}  // namespace sluice
