#include "worker/sequence_spec.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/sampling_limits.h"

namespace sluice::worker {
namespace {

// More alternatives than any API offers; bounds the size of an answer's messages.
constexpr int kMaxLogprobs = 100;

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status CheckTokens(absl::string_view field, const google::protobuf::RepeatedField<int32_t>& ids, int vocab) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab) return Bad(field, absl::StrCat("token id ", id, " is outside [0, ", vocab, ")"));
  }
  return absl::OkStatus();
}

// Written so that NaN fails too.
absl::Status CheckRange(absl::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, absl::StrCat(value, " is outside [", low, ", ", high, "]"));
}

absl::Status CheckUnsupported(const v1::SequenceSpec& spec) {
  const v1::SamplingParams& p = spec.sampling();
  constexpr absl::string_view kNotYet = "is not supported by this worker";
  if (!spec.adapter().empty()) return Bad("adapter", kNotYet);
  if (!spec.task().empty() && spec.task() != "generate") return Bad("task", kNotYet);
  if (p.has_n() && (p.n() < 1 || p.n() > kMaxChoices)) {
    return Bad("sampling.n", absl::StrCat(p.n(), " is outside [1, ", kMaxChoices, "]"));
  }
  if (spec.choice() < 0 || spec.choice() > kMaxChoices - std::max(1, p.n())) {
    return Bad("choice", absl::StrCat(spec.choice(), " and those after it are outside [0, ", kMaxChoices, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckPromptLogprobs(const v1::SequenceSpec& spec) {
  if (!spec.sampling().has_prompt_logprobs()) return absl::OkStatus();
  const int alternatives = spec.sampling().prompt_logprobs();
  if (alternatives < 0 || alternatives > kMaxPromptLogprobs) {
    return Bad("sampling.prompt_logprobs", absl::StrCat(alternatives, " is outside [0, ", kMaxPromptLogprobs, "]"));
  }
  if (const int64_t entries = PromptEntries(spec.num_prompt_tokens(), alternatives); entries > kMaxPromptEntries) {
    return Bad("sampling.prompt_logprobs",
               absl::StrCat(entries, " log-probabilities are more than ", kMaxPromptEntries));
  }
  return absl::OkStatus();
}

absl::Status CheckPenalties(const v1::SamplingParams& p, int vocab) {
  const float repetition = p.has_repetition_penalty() ? p.repetition_penalty() : 1.0f;
  if (!(std::isfinite(repetition) && repetition > 0)) {
    return Bad("sampling.repetition_penalty", absl::StrCat(repetition, " is not a finite number > 0"));
  }
  if (!std::isfinite(p.presence_penalty())) return Bad("sampling.presence_penalty", "is not finite");
  if (!std::isfinite(p.frequency_penalty())) return Bad("sampling.frequency_penalty", "is not finite");
  for (const auto& [id, bias] : p.logit_bias()) {
    if (id < 0 || id >= vocab) {
      return Bad("sampling.logit_bias", absl::StrCat("token id ", id, " is outside [0, ", vocab, ")"));
    }
    if (!std::isfinite(bias)) return Bad("sampling.logit_bias", "is not finite");
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const v1::SamplingParams& p, int vocab) {
  if (!(std::isfinite(p.temperature()) && p.temperature() >= 0)) {
    return Bad("sampling.temperature", absl::StrCat(p.temperature(), " is not a finite number >= 0"));
  }
  if (p.has_top_p()) {
    if (auto s = CheckRange("sampling.top_p", p.top_p(), 0, 1); !s.ok()) return s;
    if (p.top_p() == 0) return Bad("sampling.top_p", "0 leaves no token to draw");
  }
  if (p.top_k() < -1) return Bad("sampling.top_k", absl::StrCat(p.top_k(), " is less than -1"));
  if (auto s = CheckRange("sampling.min_p", p.min_p(), 0, 1); !s.ok()) return s;
  if (p.has_logprobs() && (p.logprobs() < 0 || p.logprobs() > kMaxLogprobs)) {
    return Bad("sampling.logprobs", absl::StrCat(p.logprobs(), " is outside [0, ", kMaxLogprobs, "]"));
  }
  if (auto s = CheckPenalties(p, vocab); !s.ok()) return s;
  if (p.min_tokens() < 0) return Bad("sampling.min_tokens", "is negative");
  if (p.max_tokens() < 1) return Bad("sampling.max_tokens", absl::StrCat(p.max_tokens(), " is less than 1"));
  return CheckTokens("sampling.stop_token_ids", p.stop_token_ids(), vocab);
}

}  // namespace

absl::StatusOr<engine::EngineRequest> ToEngineRequest(const v1::SequenceSpec& spec, int vocab) {
  if (spec.tokens().empty()) return Bad("tokens", "the prompt is empty");
  if (spec.num_prompt_tokens() < 1 || spec.num_prompt_tokens() > spec.tokens_size()) {
    return Bad("num_prompt_tokens",
               absl::StrCat(spec.num_prompt_tokens(), " is outside [1, ", spec.tokens_size(), "]"));
  }
  if (auto s = CheckTokens("tokens", spec.tokens(), vocab); !s.ok()) return s;
  if (auto s = CheckTokens("eos_token_ids", spec.eos_token_ids(), vocab); !s.ok()) return s;
  if (auto s = CheckUnsupported(spec); !s.ok()) return s;
  if (auto s = CheckPromptLogprobs(spec); !s.ok()) return s;
  const v1::SamplingParams& p = spec.sampling();
  if (auto s = CheckSampling(p, vocab); !s.ok()) return s;

  engine::EngineRequest request;
  request.choice = spec.choice();
  request.n = p.has_n() ? p.n() : 1;
  request.tokens.assign(spec.tokens().begin(), spec.tokens().end());
  request.num_prompt_tokens = spec.num_prompt_tokens();
  request.prompt_logprobs = p.has_prompt_logprobs() ? p.prompt_logprobs() : -1;
  request.priority = spec.priority();
  request.cache_salt = spec.cache_salt();
  engine::SamplingParams& to = request.sampling;
  to.temperature = p.temperature();
  to.top_p = p.has_top_p() ? p.top_p() : 1.0f;
  to.top_k = p.top_k() > 0 ? p.top_k() : 0;
  to.min_p = p.min_p();
  if (p.has_repetition_penalty()) to.repetition_penalty = p.repetition_penalty();
  to.presence_penalty = p.presence_penalty();
  to.frequency_penalty = p.frequency_penalty();
  to.seed = p.seed();
  to.logprobs = p.has_logprobs() ? p.logprobs() : -1;
  to.max_tokens = p.max_tokens();
  to.min_tokens = p.min_tokens();
  to.ignore_eos = p.ignore_eos();
  to.eos_ids.assign(spec.eos_token_ids().begin(), spec.eos_token_ids().end());
  to.stop_ids.assign(p.stop_token_ids().begin(), p.stop_token_ids().end());
  to.logit_bias.assign(p.logit_bias().begin(), p.logit_bias().end());
  std::sort(to.logit_bias.begin(), to.logit_bias.end());
  return request;
}

}  // namespace sluice::worker
