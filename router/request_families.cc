// The requests of this router.
#include "router/metric_families.h"

namespace sluice::router {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

template <size_t kBounds>
void AddHistogram(MetricFamilies& families, const char* name, const char* help, const Histogram<kBounds>& histogram) {
  prometheus::ClientMetric& metric = NewFamily(families, name, help, MetricType::Histogram).metric.emplace_back();
  metric.histogram.sample_count = histogram.count();
  metric.histogram.sample_sum = histogram.sum();
  uint64_t so_far = 0;
  for (size_t i = 0; i < kBounds; ++i) {
    so_far += histogram.counts()[i];
    metric.histogram.bucket.push_back({so_far, histogram.bounds()[i]});
  }
}

void AddCounter(MetricFamilies& families, const char* name, const char* help, uint64_t value) {
  AddValue(NewFamily(families, name, help, MetricType::Counter), {}, double(value));
}

template <size_t kSize>
void AddLabelled(MetricFamily& family, const char* label, const std::array<uint64_t, kSize>& counts, size_t first,
                 const char* (*name)(size_t)) {
  for (size_t i = first; i < kSize; ++i) AddValue(family, {{label, name(i)}}, double(counts[i]));
}

}  // namespace

void AddRequestFamilies(const RequestMetrics& m, MetricFamilies& families) {
  AddHistogram(families, "sluice_time_to_first_token_seconds", "From a request's receipt to its first token", m.ttft);
  AddHistogram(families, "sluice_time_per_output_token_seconds",
               "Of each request that ended well: (last - first token) / (tokens - 1)", m.per_output_token);
  AddHistogram(families, "sluice_inter_token_latency_seconds", "From one delivery of an answer's tokens to the next",
               m.inter_token);
  AddHistogram(families, "sluice_request_queue_time_seconds", "From a request's receipt until a worker reserved for it",
               m.queue_time);
  AddHistogram(families, "sluice_e2e_request_latency_seconds", "From a request's receipt to its end", m.end_to_end);
  AddHistogram(families, "sluice_request_prompt_tokens", "Tokens of a prompt", m.prompt_length);
  AddHistogram(families, "sluice_request_generation_tokens", "Tokens of an answer, all choices together",
               m.answer_length);
  AddCounter(families, "sluice_prompt_tokens_total", "Prompt tokens of requests that ended well", m.prompt_tokens);
  AddCounter(families, "sluice_prompt_tokens_cached_total", "Of these: found in a prefix cache", m.cached_tokens);
  AddCounter(families, "sluice_generation_tokens_total", "Tokens that clients got", m.generation_tokens);
  AddLabelled(NewFamily(families, "sluice_request_success_total", "Requests that ended well", MetricType::Counter),
              "finished_reason", m.finished, 1, FinishName);
  AddLabelled(NewFamily(families, "sluice_request_failure_total", "Requests that were queued and ended with an error",
                        MetricType::Counter),
              "error", m.failed, 1, CodeName);
  MetricFamily& refused =
      NewFamily(families, "sluice_requests_refused_total", "Requests that were never queued", MetricType::Counter);
  AddLabelled(refused, "reason", m.core_refused, 1, RefusalName);
  AddLabelled(refused, "reason", m.edge_refused, 1, CodeName);
}

}  // namespace sluice::router
