#include "engine/sampling_params.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::engine {
namespace {

template <typename T>
absl::Status Bad(absl::string_view field, T value, absl::string_view must) {
  return absl::InvalidArgumentError(absl::StrCat("sampling.", field, " is ", value, "; it must be ", must));
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

absl::Status ValidatePenalties(const SamplingParams& p) {
  if (!(p.repetition_penalty > 0.0f) || std::isinf(p.repetition_penalty)) {
    return Bad("repetition_penalty", p.repetition_penalty, "> 0 and finite");
  }
  if (!std::isfinite(p.presence_penalty)) return Bad("presence_penalty", p.presence_penalty, "finite");
  if (!std::isfinite(p.frequency_penalty)) return Bad("frequency_penalty", p.frequency_penalty, "finite");
  for (size_t i = 0; i < p.logit_bias.size(); ++i) {
    const auto& [id, bias] = p.logit_bias[i];
    if (!std::isfinite(bias)) return Bad("logit_bias", bias, "finite");
    if (i > 0 && p.logit_bias[i - 1].first >= id) return Bad("logit_bias", id, "in ascending order, each id once");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const SamplingParams& p) {
  // The comparisons are written so that NaN fails them.
  if (!(p.temperature >= 0.0f) || std::isinf(p.temperature))
    return Bad("temperature", p.temperature, ">= 0 and finite");
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f)) return Bad("top_p", p.top_p, "in (0, 1]");
  if (p.top_k < 0) return Bad("top_k", p.top_k, ">= 0");
  if (!(p.min_p >= 0.0f && p.min_p <= 1.0f)) return Bad("min_p", p.min_p, "in [0, 1]");
  if (absl::Status status = ValidatePenalties(p); !status.ok()) return status;
  if (p.logprobs < -1) return Bad("logprobs", p.logprobs, ">= 0, or -1 for none");
  if (p.max_tokens < 1) return Bad("max_tokens", p.max_tokens, ">= 1");
  if (p.min_tokens < 0) return Bad("min_tokens", p.min_tokens, ">= 0");
  if (p.min_tokens > p.max_tokens) {
    return Bad("min_tokens", p.min_tokens, absl::StrCat("<= max_tokens, which is ", p.max_tokens));
  }
  return absl::OkStatus();
}

FinishReason FinishAfter(const SamplingParams& p, int32_t token, int generated) {
  const bool ends = (!p.ignore_eos && Contains(p.eos_ids, token)) || Contains(p.stop_ids, token);
  if (ends && generated > p.min_tokens) return FinishReason::kStop;
  return generated >= p.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace sluice::engine
