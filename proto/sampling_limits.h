// What requests may not ask for yet, because the engine can't do it. Router and workers read the same numbers and
// refuse the rest by name, so that what is lifted here is lifted everywhere.
#pragma once

namespace sluice {

inline constexpr int kMaxChoices = 16;         // sampling.n
inline constexpr int kMaxPromptLogprobs = -1;  // sampling.prompt_logprobs, alternatives; -1: the field must be absent

}  // namespace sluice
