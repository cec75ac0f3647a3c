// From what a client sent to what a worker computes: every check of the public API, every default. Pure.
//
// A refusal is one INVALID_ARGUMENT that reads "field: what is wrong and what is allowed" (NOT_FOUND for a model that
// is not served). What passes is complete: no default is left to the worker, the seed and the end-of-sequence ids are
// in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/files/model_file.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "proto/worker.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

// Trace contexts are passed on, so they are bounded. W3C's traceparent has 55 bytes, and a tracestate of 512 bytes is
// what everybody must pass on at least.
inline constexpr size_t kMaxTraceparentBytes = 256;
inline constexpr size_t kMaxTracestateBytes = 512;

// What the router knows of the model. The tokenizer and the template must outlive it.
struct ServedModel {
  std::string name;                  // as responses call it
  std::vector<std::string> aliases;  // further names that requests may use
  std::string root;                  // where it comes from, as it was typed
  int context_length = 0;
  int vocab = 0;
  std::vector<int32_t> eos_ids;
  int longest_token = 0;  // bytes
  const engine::Tokenizer* tokenizer = nullptr;
  const engine::ChatTemplate* chat_template = nullptr;              // null: conversations are refused
  std::string no_chat_template = "the model has no chat template";  // then: why there is none

  engine::ToolCallStyle tool_call_style() const;
};

// The name is `served_name`, else the one in the file. `aliases`: that one, the path and the file name with and without
// its ending, so that what was typed for --model works here too.
ServedModel Describe(const engine::ModelFile& file, const engine::Tokenizer& tokenizer, const std::string& path,
                     const std::string& served_name = "");

// NOT_FOUND unless the request names no model or this one.
absl::Status CheckModel(const std::string& name, const ServedModel& model);

struct ValidRequest {
  std::string request_id;
  pb::SequenceSpec sequence;
  std::vector<std::string> stop;
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration ttft_slo;  // zero: the router's
  absl::Duration tpot_slo;
};

// capacity: the longest sequence that some live worker can hold, where that is known (> 0); it bounds only the default
// of max_tokens. draw: a fresh random number, for the seed and the id that the client did not give. now: for chat
// templates that write a date.
absl::StatusOr<ValidRequest> Validate(const pb::GenerateRequest& request, const ServedModel& model, int capacity,
                                      uint64_t draw, absl::Time now = absl::UnixEpoch());

}  // namespace sluice::router
