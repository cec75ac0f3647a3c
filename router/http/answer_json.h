// The JSON that the answers of both endpoints share. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/serving.pb.h"
#include "router/http/api_request.h"

namespace sluice::router {

struct AnswerNames {
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
};

// A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string Quoted(absl::string_view text);

// A token as text; one that is no text by itself, such as half a character, as "bytes:\xe2\x80".
std::string TokenText(const std::string& bytes);

// A log-probability; JSON has no -inf, so it ends at -9999.
std::string LogprobJson(float logprob);

// Appends an element to the inside of a JSON array or object.
void AppendElement(std::string& elements, absl::string_view element);

// `"stop"`, `"length"` or `null`.
const char* FinishJson(pb::FinishReason reason);

std::string UsageJson(const pb::Usage& usage);
// The sum over several prompts.
void AddUsage(pb::Usage& sum, const pb::Usage& usage);
// The tokens that a response brings.
void AddSoFar(pb::Usage& sum, const pb::GenerateResponse& response);

// As in gRPC: names and units are those of sluice.v1.Timing.
std::string TimingJson(const pb::Timing& timing);

// What all objects of an answer begin with, open: the choices follow.
std::string OpenObject(const AnswerNames& names, const char* object);

// `data: ...\n\n`
std::string SseEvent(absl::string_view json);
std::string SseError(const absl::Status& status);

// As vLLM's server spells the log-probabilities of a prompt: elements by token, null for the first, which nothing
// predicts; the others are objects by token id. The prompt's own token is among them, without a rank where it is none
// of the best. Appends the elements of one response.
void AppendPromptLogprobs(std::string& elements, const pb::PromptInfo& prompt);

}  // namespace sluice::router
