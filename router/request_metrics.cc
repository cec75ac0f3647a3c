#include "router/request_metrics.h"

#include <algorithm>

namespace sluice::router {
namespace {

// Seconds. From a cached prompt on a GPU to minutes in a queue.
constexpr RequestMetrics::Latency::Bounds kLatencies = {0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.25, 0.4,
                                                        0.6,   1,     1.5,  2.5,  5,    10,   20,  40,   80,   160};
// Seconds a token; most of the buckets lie where a reader feels the difference.
constexpr RequestMetrics::TokenTime::Bounds kTokenTimes = {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04,
                                                           0.05,  0.075,  0.1,   0.15,   0.2,  0.3,   0.5,  1,    2.5};
// Tokens.
constexpr RequestMetrics::Length::Bounds kLengths = {1,   4,    16,   32,   64,   128,   256,   512,
                                                     768, 1024, 2048, 4096, 8192, 16384, 32768, 131072};

size_t IndexOf(absl::StatusCode code) {
  return std::min(size_t(code), RequestMetrics::kCodes - 1);
}

}  // namespace

RequestMetrics::RequestMetrics()
    : ttft(kLatencies),
      end_to_end(kLatencies),
      queue_time(kLatencies),
      inter_token(kTokenTimes),
      per_output_token(kTokenTimes),
      prompt_length(kLengths),
      answer_length(kLengths) {}

void RequestMetrics::Succeeded(const pb::GenerateResponse& last) {
  const pb::Usage& usage = last.usage();
  const pb::Timing& timing = last.timing();
  queue_time.Observe(timing.queue_ms() / 1000);
  if (timing.tpot_ms() > 0) per_output_token.Observe(timing.tpot_ms() / 1000);
  end_to_end.Observe(timing.total_ms() / 1000);
  prompt_length.Observe(usage.prompt_tokens());
  answer_length.Observe(usage.completion_tokens());
  prompt_tokens += uint64_t(usage.prompt_tokens());
  cached_tokens += uint64_t(usage.cached_tokens());
  // Of several choices the first one's: the request is counted once.
  const pb::FinishReason reason = last.choices_size() > 0 ? last.choices(0).finish_reason() : pb::FINISH_REASON_STOP;
  ++finished[std::min(size_t(reason), kReasons - 1)];
}

void RequestMetrics::Failed(const ClientEnd& end) {
  if (end.refusal != RefusalReason::kNone) {
    ++core_refused[size_t(end.refusal)];
  } else {
    ++failed[IndexOf(end.status.code())];
  }
}

void RequestMetrics::RefusedAtEdge(absl::StatusCode code, uint64_t times) {
  edge_refused[IndexOf(code)] += times;
}

const char* FinishName(size_t reason) {
  constexpr const char* kNames[] = {"unknown", "stop", "length"};
  return kNames[std::min(reason, size_t{2})];
}

const char* CodeName(size_t code) {
  constexpr const char* kNames[RequestMetrics::kCodes] = {
      "ok",        "cancelled",      "unknown",           "invalid_argument",   "deadline_exceeded",
      "not_found", "already",        "permission_denied", "resource_exhausted", "failed_precondition",
      "aborted",   "out_of_range",   "unimplemented",     "internal",           "unavailable",
      "data_loss", "unauthenticated"};
  return kNames[std::min(code, RequestMetrics::kCodes - 1)];
}

const char* RefusalName(size_t refusal) {
  constexpr const char* kNames[] = {"none", "no_worker", "queue_full", "ttft_slo", "shutdown"};
  return kNames[std::min(refusal, size_t{4})];
}

}  // namespace sluice::router
