#include "engine/sampling_params.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::engine {
namespace {

template <typename T>
absl::Status Bad(absl::string_view field, T value, absl::string_view must) {
  return absl::InvalidArgumentError(absl::StrCat("sampling.", field, " is ", value, "; it must be ", must));
}

}  // namespace

absl::Status Validate(const SamplingParams& p) {
  // The comparisons are written so that NaN fails them.
  if (!(p.temperature >= 0.0f) || std::isinf(p.temperature))
    return Bad("temperature", p.temperature, ">= 0 and finite");
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f)) return Bad("top_p", p.top_p, "in (0, 1]");
  if (p.top_k < 0) return Bad("top_k", p.top_k, ">= 0");
  if (!(p.min_p >= 0.0f && p.min_p <= 1.0f)) return Bad("min_p", p.min_p, "in [0, 1]");
  if (p.logprobs < -1) return Bad("logprobs", p.logprobs, ">= 0, or -1 for none");
  if (p.max_tokens < 1) return Bad("max_tokens", p.max_tokens, ">= 1");
  if (p.min_tokens < 0) return Bad("min_tokens", p.min_tokens, ">= 0");
  if (p.min_tokens > p.max_tokens) {
    return Bad("min_tokens", p.min_tokens, absl::StrCat("<= max_tokens, which is ", p.max_tokens));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
