#include "router/validate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/sampling_limits.h"
#include "router/prompt_tokens.h"

namespace sluice::router {
namespace {

constexpr int kMaxLogprobs = 20;
constexpr int kMaxStops = 16;
constexpr int kMaxStopIds = 128;
constexpr int kMaxStopBytes = 1024;
constexpr int kMaxBiases = 1024;
constexpr float kMaxBias = 100.0f;
constexpr float kMaxPenalty = 2.0f;
constexpr int kMaxNameBytes = 256;
constexpr int kMaxPriority = 1000;

absl::Status Bad(const std::string& field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status Unsupported(const std::string& field, const std::string& hint) {
  return Bad(field, absl::StrCat("is not supported yet; ", hint));
}

// A number of a client in a message: short, and nan and inf as such.
std::string Show(float value) {
  return absl::StrFormat("%g", value);
}

absl::Status CheckRange(const std::string& field, float value, bool ok, const char* allowed) {
  return ok ? absl::OkStatus() : Bad(field, absl::StrCat("must be ", allowed, ", got ", Show(value)));
}

absl::Status CheckBytes(const std::string& field, const std::string& value, size_t most) {
  if (value.size() <= most) return absl::OkStatus();
  return Bad(field, absl::StrFormat("must have at most %d bytes, got %d", most, value.size()));
}

absl::Status CheckIds(const std::string& field, const google::protobuf::RepeatedField<int32_t>& ids, int vocab) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return Bad(field, absl::StrFormat("ids must be in [0, %d), got %d at position %d", vocab, ids[i], i));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> PromptTokens(const pb::GenerateRequest& request, const ServedModel& model,
                                                  absl::Time now) {
  switch (request.prompt_case()) {
    case pb::GenerateRequest::kChat:
      return ChatTokens(request.chat(), model, now);
    case pb::GenerateRequest::kText:
      return TextTokens(request.text(), model);
    case pb::GenerateRequest::kTokenIds: {
      const auto& ids = request.token_ids().ids();
      if (absl::Status status = CheckIds("token_ids.ids", ids, model.vocab); !status.ok()) return status;
      return std::vector<int32_t>(ids.begin(), ids.end());
    }
    case pb::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return Bad("prompt", "is missing; give text, token_ids or chat");
}

const char* PromptField(const pb::GenerateRequest& request) {
  return request.has_chat() ? "messages" : request.has_text() ? "text" : "token_ids.ids";
}

absl::Status FillPrompt(const pb::GenerateRequest& request, const ServedModel& model, absl::Time now,
                        pb::SequenceSpec& sequence) {
  const absl::StatusOr<std::vector<int32_t>> ids = PromptTokens(request, model, now);
  if (!ids.ok()) return ids.status();
  const int count = int(ids->size());
  if (count == 0) return Bad(PromptField(request), "the prompt must not be empty");
  if (count >= model.context_length) {
    return Bad(PromptField(request),
               absl::StrFormat("the prompt has %d tokens and leaves no room for an answer in the context of %d "
                               "tokens; at most %d tokens are allowed",
                               count, model.context_length, model.context_length - 1));
  }
  sequence.mutable_tokens()->Add(ids->begin(), ids->end());
  sequence.set_num_prompt_tokens(count);
  return absl::OkStatus();
}

// Fields that the workers can't honour yet. A default value that is spelled out is fine.
absl::Status CheckUnsupported(const pb::GenerateRequest& request) {
  const pb::SamplingParams& s = request.sampling();
  if (s.has_n() && (s.n() < 1 || s.n() > kMaxChoices)) {
    return Bad("sampling.n", absl::StrFormat("must be in [1, %d], got %d", kMaxChoices, s.n()));
  }
  if (!request.adapter().empty()) return Unsupported("adapter", "leave it out");
  if (!request.task().empty() && request.task() != "generate") {
    return Bad("task", "must be \"generate\" or empty");
  }
  return absl::OkStatus();
}

absl::Status FillBiases(const pb::SamplingParams& in, const ServedModel& model, pb::SamplingParams& out) {
  const std::string field = "sampling.logit_bias";
  if (in.logit_bias_size() > kMaxBiases) {
    return Bad(field, absl::StrFormat("at most %d tokens are allowed, got %d", kMaxBiases, in.logit_bias_size()));
  }
  const std::map<int32_t, float> biases(in.logit_bias().begin(), in.logit_bias().end());  // the lowest bad id is named
  for (const auto& [id, bias] : biases) {
    if (id < 0 || id >= model.vocab) {
      return Bad(field, absl::StrFormat("ids must be in [0, %d), got %d", model.vocab, id));
    }
    if (!(bias >= -kMaxBias && bias <= kMaxBias)) {
      return Bad(field, absl::StrFormat("values must be in [%g, %g], got %s for token %d", -kMaxBias, kMaxBias,
                                        Show(bias), id));
    }
  }
  *out.mutable_logit_bias() = in.logit_bias();
  return absl::OkStatus();
}

absl::Status FillPenalties(const pb::SamplingParams& in, pb::SamplingParams& out) {
  const float repetition = in.has_repetition_penalty() ? in.repetition_penalty() : 1.0f;
  const auto in_range = [](float value) { return value >= -kMaxPenalty && value <= kMaxPenalty; };
  const absl::Status checks[] = {
      CheckRange("sampling.repetition_penalty", repetition, std::isfinite(repetition) && repetition > 0,
                 "a finite number > 0"),
      CheckRange("sampling.presence_penalty", in.presence_penalty(), in_range(in.presence_penalty()), "in [-2, 2]"),
      CheckRange("sampling.frequency_penalty", in.frequency_penalty(), in_range(in.frequency_penalty()), "in [-2, 2]"),
  };
  for (const absl::Status& status : checks) {
    if (!status.ok()) return status;
  }
  out.set_repetition_penalty(repetition);
  out.set_presence_penalty(in.presence_penalty());
  out.set_frequency_penalty(in.frequency_penalty());
  return absl::OkStatus();
}

absl::Status FillSampling(const pb::SamplingParams& in, const ServedModel& model, pb::SamplingParams& out) {
  const float temperature = in.temperature();
  const float top_p = in.has_top_p() ? in.top_p() : 1.0f;
  const float min_p = in.min_p();
  const absl::Status checks[] = {
      CheckRange("sampling.temperature", temperature, std::isfinite(temperature) && temperature >= 0,
                 "a finite number >= 0"),
      CheckRange("sampling.top_p", top_p, top_p > 0 && top_p <= 1, "in (0, 1]"),
      CheckRange("sampling.min_p", min_p, min_p >= 0 && min_p <= 1, "in [0, 1]"),
  };
  for (const absl::Status& status : checks) {
    if (!status.ok()) return status;
  }
  if (in.top_k() < -1) {
    return Bad("sampling.top_k", absl::StrFormat("must be >= -1 (0 and -1 mean all), got %d", in.top_k()));
  }
  if (in.has_logprobs() && (in.logprobs() < 0 || in.logprobs() > kMaxLogprobs)) {
    return Bad("sampling.logprobs", absl::StrFormat("must be in [0, %d], got %d", kMaxLogprobs, in.logprobs()));
  }
  if (in.has_prompt_logprobs() && (in.prompt_logprobs() < 0 || in.prompt_logprobs() > kMaxPromptLogprobs)) {
    return Bad("sampling.prompt_logprobs",
               absl::StrFormat("must be in [0, %d], got %d", kMaxPromptLogprobs, in.prompt_logprobs()));
  }
  if (in.stop_token_ids_size() > kMaxStopIds) {
    return Bad("sampling.stop_token_ids",
               absl::StrFormat("at most %d are allowed, got %d", kMaxStopIds, in.stop_token_ids_size()));
  }
  if (absl::Status status = CheckIds("sampling.stop_token_ids", in.stop_token_ids(), model.vocab); !status.ok()) {
    return status;
  }
  out.set_temperature(temperature);
  out.set_top_p(top_p);
  out.set_top_k(std::max(0, in.top_k()));
  out.set_min_p(min_p);
  if (in.has_logprobs()) out.set_logprobs(in.logprobs());
  out.set_ignore_eos(in.ignore_eos());
  *out.mutable_stop_token_ids() = in.stop_token_ids();
  out.set_n(in.has_n() ? in.n() : 1);
  if (in.has_prompt_logprobs()) out.set_prompt_logprobs(in.prompt_logprobs());
  return absl::OkStatus();
}

absl::Status CheckPromptEntries(const pb::SamplingParams& in, int prompt) {
  const int64_t entries = in.has_prompt_logprobs() ? PromptEntries(prompt, in.prompt_logprobs()) : 0;
  if (entries <= kMaxPromptEntries) return absl::OkStatus();
  return Bad("sampling.prompt_logprobs",
             absl::StrFormat("prompt (%d tokens) x (1 + %d) are %d log-probabilities, more than %d; ask for fewer "
                             "alternatives, or shorten the prompt",
                             prompt, in.prompt_logprobs(), entries, kMaxPromptEntries));
}

// REQUIRES: the prompt leaves room for at least one token.
absl::Status FillLengths(const pb::SamplingParams& in, const ServedModel& model, int capacity, int prompt,
                         pb::SamplingParams& out) {
  const int room = model.context_length - prompt;
  int max_tokens = room;
  if (in.has_max_tokens()) {
    max_tokens = in.max_tokens();
    if (max_tokens < 1) return Bad("sampling.max_tokens", absl::StrFormat("must be >= 1, got %d", max_tokens));
    if (max_tokens > room) {
      return Bad("sampling.max_tokens",
                 absl::StrFormat("prompt (%d tokens) + max_tokens (%d) is more than the context of %d tokens; at most "
                                 "%d are allowed for this prompt",
                                 prompt, max_tokens, model.context_length, room));
    }
  } else if (capacity > prompt) {
    max_tokens = std::min(room, capacity - prompt);
  }
  const int min_tokens = in.min_tokens();
  if (min_tokens < 0) return Bad("sampling.min_tokens", absl::StrFormat("must be >= 0, got %d", min_tokens));
  if (min_tokens > max_tokens) {
    return Bad("sampling.min_tokens",
               absl::StrFormat("must be at most max_tokens (%d), got %d", max_tokens, min_tokens));
  }
  out.set_max_tokens(max_tokens);
  out.set_min_tokens(min_tokens);
  return absl::OkStatus();
}

absl::Status FillStops(const pb::SamplingParams& in, std::vector<std::string>& stops) {
  if (in.stop_size() > kMaxStops) {
    return Bad("sampling.stop", absl::StrFormat("at most %d strings are allowed, got %d", kMaxStops, in.stop_size()));
  }
  for (const std::string& stop : in.stop()) {
    if (stop.empty()) return Bad("sampling.stop", "strings must not be empty");
    if (stop.size() > size_t(kMaxStopBytes)) {
      return Bad("sampling.stop",
                 absl::StrFormat("strings must have at most %d bytes, got %d", kMaxStopBytes, stop.size()));
    }
    stops.push_back(stop);
  }
  return absl::OkStatus();
}

absl::Status FillRest(const pb::GenerateRequest& request, ValidRequest& valid) {
  const absl::Status checks[] = {
      CheckBytes("request_id", request.request_id(), kMaxNameBytes),
      CheckBytes("tenant", request.tenant(), kMaxNameBytes),
      CheckBytes("cache_salt", request.cache_salt(), kMaxNameBytes),
      CheckBytes("trace.traceparent", request.trace().traceparent(), kMaxTraceparentBytes),
      CheckBytes("trace.tracestate", request.trace().tracestate(), kMaxTracestateBytes),
  };
  for (const absl::Status& status : checks) {
    if (!status.ok()) return status;
  }
  if (request.priority() < -kMaxPriority || request.priority() > kMaxPriority) {
    return Bad("priority",
               absl::StrFormat("must be in [%d, %d], got %d", -kMaxPriority, kMaxPriority, request.priority()));
  }
  if (request.has_timeout_ms()) {
    if (request.timeout_ms() <= 0) {
      return Bad("timeout_ms", absl::StrFormat("must be > 0, got %d", request.timeout_ms()));
    }
    valid.timeout = absl::Milliseconds(request.timeout_ms());
  }
  for (const auto& [field, given, value, limit] :
       {std::tuple("ttft_slo_ms", request.has_ttft_slo_ms(), request.ttft_slo_ms(), &valid.ttft_slo),
        std::tuple("tpot_slo_ms", request.has_tpot_slo_ms(), request.tpot_slo_ms(), &valid.tpot_slo)}) {
    if (!given) continue;
    if (value <= 0) return Bad(field, absl::StrFormat("must be > 0, got %d", value));
    *limit = absl::Milliseconds(value);
  }
  pb::SequenceSpec& sequence = valid.sequence;
  sequence.set_task("generate");
  sequence.set_priority(request.priority());
  sequence.set_tenant(request.tenant());
  sequence.set_cache_salt(request.cache_salt());
  if (request.has_trace()) *sequence.mutable_trace() = request.trace();
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModel(const std::string& name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  if (std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end()) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrFormat("model: \"%s\" is not served here; \"%s\" is", name.substr(0, kMaxNameBytes), model.name));
}

engine::ToolCallStyle ServedModel::tool_call_style() const {
  return chat_template == nullptr ? engine::ToolCallStyle::kNone : chat_template->tool_call_style();
}

ServedModel Describe(const engine::ModelFile& file, const engine::Tokenizer& tokenizer, const std::string& path,
                     const std::string& served_name) {
  ServedModel model;
  const std::string base = path.substr(path.find_last_of('/') + 1);
  const std::string own_name = file.config().name.empty() ? base : file.config().name;
  model.name = served_name.empty() ? own_name : served_name;
  model.aliases = {own_name, path, base, base.substr(0, base.rfind('.'))};
  model.root = path;
  model.context_length = file.config().context_length;
  model.vocab = file.config().vocab;
  model.eos_ids = file.tokenizer().eog_ids;
  model.tokenizer = &tokenizer;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    model.longest_token = std::max(model.longest_token, int(tokenizer.TokenBytes(id).size()));
  }
  // Names of control tokens count as text too.
  for (const std::string& token : file.tokenizer().tokens) {
    model.longest_token = std::max(model.longest_token, int(token.size()));
  }
  return model;
}

absl::StatusOr<ValidRequest> Validate(const pb::GenerateRequest& request, const ServedModel& model, int capacity,
                                      uint64_t draw, absl::Time now) {
  ValidRequest valid;
  const pb::SamplingParams& in = request.sampling();
  pb::SamplingParams& out = *valid.sequence.mutable_sampling();
  if (absl::Status s = CheckModel(request.model(), model); !s.ok()) return s;
  if (absl::Status s = CheckUnsupported(request); !s.ok()) return s;
  if (absl::Status s = FillSampling(in, model, out); !s.ok()) return s;
  if (absl::Status s = FillPenalties(in, out); !s.ok()) return s;
  if (absl::Status s = FillBiases(in, model, out); !s.ok()) return s;
  if (absl::Status s = FillStops(in, valid.stop); !s.ok()) return s;
  if (absl::Status s = FillRest(request, valid); !s.ok()) return s;
  if (absl::Status s = FillPrompt(request, model, now, valid.sequence); !s.ok()) return s;
  if (absl::Status s = CheckPromptEntries(in, valid.sequence.num_prompt_tokens()); !s.ok()) return s;
  if (absl::Status s = FillLengths(in, model, capacity, valid.sequence.num_prompt_tokens(), out); !s.ok()) return s;
  out.set_seed(in.has_seed() ? in.seed() : draw);
  valid.sequence.set_model(model.name);
  valid.sequence.mutable_eos_token_ids()->Add(model.eos_ids.begin(), model.eos_ids.end());
  valid.request_id = request.request_id().empty() ? absl::StrFormat("gen-%016x", draw) : request.request_id();
  return valid;
}

}  // namespace sluice::router
