#include "router/http_request.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::router {
namespace {

constexpr float kDefaultTemperature = 1.0f;
constexpr int kDefaultMaxTokens = 16;
constexpr size_t kShownBytes = 40;  // of a client's text in a message

using Value = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string>;

const char* Kind(const Value& value) {
  static constexpr const char* kKinds[] = {"null", "a boolean", "a number", "a number", "a number", "a string"};
  return kKinds[value.index()];
}

absl::Status Bad(const char* field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status WrongType(const char* field, const char* wanted, const char* got) {
  return Bad(field, absl::StrCat("must be ", wanted, ", got ", got));
}

// ---- scalars ----

// Whole numbers may be spelled as 16.0; 64 bits of either sign keep their bits.
absl::StatusOr<uint64_t> ToWhole(const char* field, const Value& value, int64_t min, uint64_t max) {
  bool fits = false;
  uint64_t bits = 0;
  if (const int64_t* i = std::get_if<int64_t>(&value)) {
    bits = uint64_t(*i);
    fits = *i < 0 ? *i >= min : bits <= max;
  } else if (const uint64_t* u = std::get_if<uint64_t>(&value)) {
    bits = *u;
    fits = bits <= max;
  } else if (const double* d = std::get_if<double>(&value)) {
    if (*d != std::floor(*d)) return WrongType(field, "an integer", "a fraction");
    fits = std::abs(*d) < 0x1p53 && (*d < 0 ? *d >= double(min) : *d <= double(max));
    if (fits) bits = uint64_t(int64_t(*d));
  } else {
    return WrongType(field, "an integer", Kind(value));
  }
  if (!fits) return Bad(field, "is out of range");
  return bits;
}

absl::StatusOr<int32_t> ToInt(const char* field, const Value& value) {
  const auto whole = ToWhole(field, value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  if (!whole.ok()) return whole.status();
  return int32_t(uint32_t(*whole));
}

absl::StatusOr<float> ToFloat(const char* field, const Value& value) {
  if (const int64_t* i = std::get_if<int64_t>(&value)) return float(*i);
  if (const uint64_t* u = std::get_if<uint64_t>(&value)) return float(*u);
  if (const double* d = std::get_if<double>(&value)) return float(*d);
  return WrongType(field, "a number", Kind(value));
}

// ---- fields ----

// Set: the field's value. Add: an element of its array; fields without one take no array.
using Setter = absl::Status (*)(CompletionRequest& out, const char* field, const Value& value);
struct Field {
  const char* name;
  Setter set;
  Setter add = nullptr;
  bool object = false;
  const char* wanted = "a single value";  // for messages about arrays and objects
};

template <void (pb::SamplingParams::*kSet)(int32_t)>
absl::Status SetInt(CompletionRequest& out, const char* field, const Value& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (number.ok()) (out.request.mutable_sampling()->*kSet)(*number);
  return number.status();
}

template <void (pb::SamplingParams::*kSet)(float)>
absl::Status SetFloat(CompletionRequest& out, const char* field, const Value& value) {
  const absl::StatusOr<float> number = ToFloat(field, value);
  if (number.ok()) (out.request.mutable_sampling()->*kSet)(*number);
  return number.status();
}

template <bool CompletionRequest::*kMember>
absl::Status SetBool(CompletionRequest& out, const char* field, const Value& value) {
  const bool* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return WrongType(field, "a boolean", Kind(value));
  out.*kMember = *flag;
  return absl::OkStatus();
}

absl::Status SetIgnoreEos(CompletionRequest& out, const char* field, const Value& value) {
  const bool* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return WrongType(field, "a boolean", Kind(value));
  out.request.mutable_sampling()->set_ignore_eos(*flag);
  return absl::OkStatus();
}

absl::Status SetSeed(CompletionRequest& out, const char* field, const Value& value) {
  const auto seed = ToWhole(field, value, std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max());
  if (seed.ok()) out.request.mutable_sampling()->set_seed(*seed);
  return seed.status();
}

absl::Status SetModel(CompletionRequest& out, const char* field, const Value& value) {
  const std::string* name = std::get_if<std::string>(&value);
  if (name == nullptr) return WrongType(field, "a string", Kind(value));
  if (name->empty()) return Bad(field, "must not be empty");
  out.request.set_model(*name);
  return absl::OkStatus();
}

absl::Status SetPriority(CompletionRequest& out, const char* field, const Value& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (number.ok()) out.request.set_priority(*number);
  return number.status();
}

absl::Status SetTimeout(CompletionRequest& out, const char* field, const Value& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (number.ok()) out.request.set_timeout_ms(*number);
  return number.status();
}

absl::Status SetTtftSlo(CompletionRequest& out, const char* field, const Value& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (number.ok()) out.request.set_ttft_slo_ms(*number);
  return number.status();
}

absl::Status SetTpotSlo(CompletionRequest& out, const char* field, const Value& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (number.ok()) out.request.set_tpot_slo_ms(*number);
  return number.status();
}

absl::Status AddStop(CompletionRequest& out, const char* field, const Value& value) {
  const std::string* stop = std::get_if<std::string>(&value);
  if (stop == nullptr) return WrongType(field, "a string or an array of strings", Kind(value));
  out.request.mutable_sampling()->add_stop(*stop);
  return absl::OkStatus();
}

absl::Status NeedsIds(CompletionRequest&, const char* field, const Value& value) {
  return WrongType(field, "an array of token ids", Kind(value));
}

absl::Status AddStopId(CompletionRequest& out, const char* field, const Value& value) {
  const absl::StatusOr<int32_t> id = ToInt(field, value);
  if (id.ok()) out.request.mutable_sampling()->add_stop_token_ids(*id);
  return id.status();
}

constexpr char kWantedPrompt[] = "a string or an array of token ids";

absl::Status SeveralPrompts(const char* field) {
  return Bad(field, "only one prompt per request is supported");
}

absl::Status SetPrompt(CompletionRequest& out, const char* field, const Value& value) {
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr) return WrongType(field, kWantedPrompt, Kind(value));
  out.request.set_text(*text);
  return absl::OkStatus();
}

// An element of the prompt's array: a token id, or the text of its only prompt.
absl::Status AddPrompt(CompletionRequest& out, const char* field, const Value& value) {
  if (out.request.has_text()) return SeveralPrompts(field);
  if (std::holds_alternative<std::string>(value)) {
    if (out.request.token_ids().ids_size() > 0) return WrongType(field, kWantedPrompt, "a mix of both");
    return SetPrompt(out, field, value);
  }
  const absl::StatusOr<int32_t> id = ToInt(field, value);
  if (id.ok()) out.request.mutable_token_ids()->add_ids(*id);
  return id.status();
}

// Fields that other servers know and this one does not, so that nobody believes they took effect.

absl::Status OnlyFalse(CompletionRequest&, const char* field, const Value& value) {
  const bool* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return WrongType(field, "a boolean", Kind(value));
  return *flag ? Bad(field, "is not supported yet; only false is allowed") : absl::OkStatus();
}

absl::Status OnlyOne(CompletionRequest&, const char* field, const Value& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (!number.ok()) return number.status();
  return *number == 1 ? absl::OkStatus() : Bad(field, "is not supported yet; only 1 is allowed");
}

absl::Status OnlyEmpty(CompletionRequest&, const char* field, const Value& value) {
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr) return WrongType(field, "a string", Kind(value));
  return text->empty() ? absl::OkStatus() : Bad(field, "is not supported yet; leave it out");
}

absl::Status AnyString(CompletionRequest&, const char* field, const Value& value) {
  return std::holds_alternative<std::string>(value) ? absl::OkStatus() : WrongType(field, "a string", Kind(value));
}

absl::Status NeedsObject(CompletionRequest&, const char* field, const Value& value) {
  return WrongType(field, "an object", Kind(value));
}

constexpr char kPrompt[] = "prompt";
constexpr char kStreamOptions[] = "stream_options";
constexpr char kLogitBias[] = "logit_bias";

const Field kFields[] = {
    {"model", SetModel, nullptr, false, "a string"},
    {kPrompt, SetPrompt, AddPrompt, false, kWantedPrompt},
    {"max_tokens", SetInt<&pb::SamplingParams::set_max_tokens>},
    {"min_tokens", SetInt<&pb::SamplingParams::set_min_tokens>},
    {"temperature", SetFloat<&pb::SamplingParams::set_temperature>},
    {"top_p", SetFloat<&pb::SamplingParams::set_top_p>},
    {"top_k", SetInt<&pb::SamplingParams::set_top_k>},
    {"min_p", SetFloat<&pb::SamplingParams::set_min_p>},
    {"seed", SetSeed},
    {"stop", AddStop, AddStop, false, "a string or an array of strings"},
    {"stop_token_ids", NeedsIds, AddStopId, false, "an array of token ids"},
    {"ignore_eos", SetIgnoreEos},
    {"logprobs", SetInt<&pb::SamplingParams::set_logprobs>},
    {"prompt_logprobs", SetInt<&pb::SamplingParams::set_prompt_logprobs>},
    {"n", SetInt<&pb::SamplingParams::set_n>},
    {"best_of", OnlyOne},
    {"presence_penalty", SetFloat<&pb::SamplingParams::set_presence_penalty>},
    {"frequency_penalty", SetFloat<&pb::SamplingParams::set_frequency_penalty>},
    {"repetition_penalty", SetFloat<&pb::SamplingParams::set_repetition_penalty>},
    {kLogitBias, NeedsObject, nullptr, true, "an object"},
    {"stream", SetBool<&CompletionRequest::stream>},
    {kStreamOptions, NeedsObject, nullptr, true, "an object"},
    {"echo", OnlyFalse},
    {"suffix", OnlyEmpty, nullptr, false, "a string"},
    {"user", AnyString, nullptr, false, "a string"},
    {"priority", SetPriority},
    {"timeout_ms", SetTimeout},
    {"ttft_slo_ms", SetTtftSlo},
    {"tpot_slo_ms", SetTpotSlo},
};

const Field* Find(std::string_view name) {
  for (const Field& field : kFields) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

// ---- the reader ----

// Takes the parser's events one by one; false stops the parser, and `status_` says why.
class Reader {
 public:
  explicit Reader(CompletionRequest& out) : out_(out) {}
  const absl::Status& status() const { return status_; }

  bool null() { return Take(Value()); }
  bool boolean(bool value) { return Take(value); }
  bool number_integer(int64_t value) { return Take(value); }
  bool number_unsigned(uint64_t value) { return Take(value); }
  bool number_float(double value, const std::string&) { return Take(value); }
  bool string(std::string& value) { return Take(std::move(value)); }
  bool binary(std::vector<uint8_t>&) { return false; }  // no such thing in JSON

  bool key(std::string& name) {
    if (depth_ == 1) {
      field_ = Find(name);
      if (field_ == nullptr) return true;
      const size_t index = size_t(field_ - kFields);
      if (seen_[index]) return Keep(Bad(field_->name, "is given twice"));
      seen_[index] = true;
    } else if (depth_ == 2) {
      inner_key_ = std::move(name);
    }
    return true;
  }

  bool start_object(size_t) {
    if (depth_++ == 0 || field_ == nullptr) return true;
    if (in_object_) return NoBias("an object");
    if (depth_ == 2 && field_->object) return in_object_ = true;
    return Keep(WrongType(field_->name, field_->wanted, depth_ == 2 ? "an object" : "an array of objects"));
  }
  bool end_object() { return Leave(); }

  bool start_array(size_t) {
    if (depth_++ == 0) return NotAnObject();
    if (field_ == nullptr) return true;
    if (in_object_) return NoBias("an array");
    if (field_->add == nullptr) return Keep(WrongType(field_->name, field_->wanted, "an array"));
    const bool is_prompt = field_->name == kPrompt;
    if (depth_ == 2) {
      if (is_prompt) out_.request.mutable_token_ids();
      return true;
    }
    // An array of arrays is a list of prompts, which may have one element.
    if (!is_prompt || depth_ > 3) return Keep(WrongType(field_->name, field_->wanted, "an array of arrays"));
    if (lists_++ > 0 || out_.request.has_text()) return Keep(SeveralPrompts(kPrompt));
    if (out_.request.token_ids().ids_size() > 0) return Keep(WrongType(kPrompt, kWantedPrompt, "a mix of both"));
    return true;
  }
  bool end_array() { return Leave(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return Keep(absl::InvalidArgumentError(absl::StrCat("the body is not valid JSON: error at byte ", position)));
  }

 private:
  bool Keep(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return status_.ok();
  }
  bool NotAnObject() { return Keep(absl::InvalidArgumentError("the body must be a JSON object")); }

  bool Leave() {
    if (--depth_ == 1) in_object_ = false;
    return true;
  }

  bool Take(const Value& value) {
    if (depth_ == 0) return NotAnObject();
    if (field_ == nullptr) return true;
    if (in_object_) return depth_ == 2 ? Keep(TakeInner(value)) : true;
    if (depth_ == 1) {
      return std::holds_alternative<std::monostate>(value) || Keep(field_->set(out_, field_->name, value));
    }
    if (depth_ == 2 && lists_ > 0) return Keep(SeveralPrompts(kPrompt));
    if (depth_ == 3 && std::holds_alternative<std::string>(value)) {
      return Keep(WrongType(kPrompt, kWantedPrompt, "an array of arrays of strings"));
    }
    return Keep(field_->add(out_, field_->name, value));
  }

  absl::Status TakeInner(const Value& value) {
    if (field_->name == kLogitBias) return TakeBias(value);
    if (inner_key_ != "include_usage" || std::holds_alternative<std::monostate>(value)) return absl::OkStatus();
    return SetBool<&CompletionRequest::include_usage>(out_, "stream_options.include_usage", value);
  }

  // A value that opens inside a field's object: only logit_bias' matter.
  bool NoBias(const char* kind) { return field_->name != kLogitBias || Keep(WrongType(kLogitBias, "a number", kind)); }

  absl::Status TakeBias(const Value& value) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(inner_key_, &id)) {
      return Bad(kLogitBias, absl::StrCat("keys must be token ids, got \"", inner_key_.substr(0, kShownBytes), "\""));
    }
    const absl::StatusOr<float> bias = ToFloat(kLogitBias, value);
    if (!bias.ok()) return bias.status();
    const auto added = out_.request.mutable_sampling()->mutable_logit_bias()->insert({id, *bias});
    return added.second ? absl::OkStatus() : Bad(kLogitBias, absl::StrCat("token ", id, " is given twice"));
  }

  CompletionRequest& out_;
  absl::Status status_;
  int64_t depth_ = 0;             // 1: inside the body's object
  const Field* field_ = nullptr;  // at depth 1; empty for unknown ones
  bool in_object_ = false;        // inside the object of field_
  int lists_ = 0;                 // arrays inside the prompt's array
  std::string inner_key_;
  bool seen_[std::size(kFields)] = {};
};

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletion(std::string_view body) {
  CompletionRequest out;
  Reader reader(out);
  const bool complete = nlohmann::json::sax_parse(body.begin(), body.end(), &reader);
  if (!reader.status().ok()) return reader.status();
  if (!complete) return absl::InvalidArgumentError("the body is not valid JSON");
  if (out.request.prompt_case() == pb::GenerateRequest::PROMPT_NOT_SET) {
    return Bad(kPrompt, absl::StrCat("is missing; give ", kWantedPrompt));
  }
  pb::SamplingParams& sampling = *out.request.mutable_sampling();
  if (out.stream && sampling.has_prompt_logprobs()) {
    return Bad("prompt_logprobs", "is not available in a stream; leave out \"stream\" or this field");
  }
  if (!sampling.has_temperature()) sampling.set_temperature(kDefaultTemperature);
  if (!sampling.has_max_tokens()) sampling.set_max_tokens(kDefaultMaxTokens);
  return out;
}

}  // namespace sluice::router
