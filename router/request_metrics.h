// What a router counts of its requests: latencies, lengths, tokens, how they ended. Pure; one thread. Plain arrays:
// recording a token allocates nothing and takes no lock; the whole is copied for whoever shows it.
//
// Definitions, all on the router's clock: TTFT from the receipt of a request to its first token; an inter-token latency
// from one delivery of a choice's tokens to the next (a step that brings several tokens is one); TPOT (last - first) /
// (tokens - 1) of choice 0; queue time until a worker has reserved; end to end until the last word. TPOT, queue time,
// end to end and lengths are of requests that ended well.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/events.h"
#include "router/histogram.h"

namespace sluice::router {

class RequestMetrics {
 public:
  static constexpr size_t kLatencyBounds = 20;
  static constexpr size_t kTokenTimeBounds = 18;
  static constexpr size_t kLengthBounds = 16;
  static constexpr size_t kCodes = 17;   // of absl::StatusCode
  static constexpr size_t kReasons = 3;  // of FinishReason
  using Latency = Histogram<kLatencyBounds>;
  using TokenTime = Histogram<kTokenTimeBounds>;
  using Length = Histogram<kLengthBounds>;

  RequestMetrics();

  // New tokens of a choice that count. `since_last`: of the choice's last ones; nothing: they are its first.
  void Tokens(int count, std::optional<absl::Duration> since_last) {
    generation_tokens += uint64_t(count);
    if (since_last.has_value()) inter_token.Observe(absl::ToDoubleSeconds(*since_last));
  }
  void FirstToken(absl::Duration since_received) { ttft.Observe(absl::ToDoubleSeconds(since_received)); }

  // `last`: the response that ends a request that ended well.
  void Succeeded(const pb::GenerateResponse& last);
  void Failed(const ClientEnd& end);
  // Before it came to the core.
  void RefusedAtEdge(absl::StatusCode code, uint64_t times = 1);

  Latency ttft, end_to_end, queue_time;
  TokenTime inter_token, per_output_token;
  Length prompt_length, answer_length;
  uint64_t prompt_tokens = 0;                      // of requests that ended well
  uint64_t cached_tokens = 0;                      // of them: found in a prefix cache
  uint64_t generation_tokens = 0;                  // of all requests, as they came
  std::array<uint64_t, kReasons> finished = {};    // by pb::FinishReason
  std::array<uint64_t, kCodes> failed = {};        // by absl::StatusCode, of those that were queued
  std::array<uint64_t, kCodes> edge_refused = {};  // by absl::StatusCode
  std::array<uint64_t, 5> core_refused = {};       // by RefusalReason
};

// "stop", "unavailable", "queue_full", ...: values of labels.
const char* FinishName(size_t reason);
const char* CodeName(size_t code);
const char* RefusalName(size_t refusal);

}  // namespace sluice::router
