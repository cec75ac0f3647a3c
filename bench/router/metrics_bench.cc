// What a router's metrics cost: recording a token on the core's thread, remembering an ended request, and the text of
// /metrics with eight workers.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/metrics.h"
#include "router/request_log.h"

namespace sluice::router {
namespace {

void Token(benchmark::State& state) {
  std::mt19937_64 rng(1);
  std::vector<absl::Duration> gaps(1024);
  for (absl::Duration& gap : gaps) gap = absl::Microseconds(int64_t(1000 + rng() % 200000));
  RequestMetrics metrics;
  size_t i = 0;
  for (auto _ : state) {
    metrics.Tokens(1, gaps[i++ & 1023]);
    benchmark::DoNotOptimize(metrics);
  }
}
BENCHMARK(Token);

void EndedRequest(benchmark::State& state) {
  pb::RequestSummary summary;
  summary.set_request_id("cmpl-0123456789abcdef");
  for (int i = 0; i < 12; ++i) {
    pb::TimelineEvent& event = *summary.mutable_timing()->add_timeline();
    event.set_name("prefill_chunk");
    event.set_worker("prefill 127.0.0.1:33051");
  }
  RequestLog log(200);
  for (auto _ : state) log.Add(summary, absl::UnixEpoch());
}
BENCHMARK(EndedRequest);

// Four prefill and four decode workers, every pair up.
MetricsInput EightWorkers() {
  MetricsInput input;
  for (int i = 0; i < 8; ++i) {
    v1::WorkerStatus& worker = *input.state.add_workers();
    worker.set_role(i < 4 ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
    worker.set_host("127.0.0.1");
    worker.set_port(40000 + i);
    worker.set_state(v1::WORKER_STATE_ACTIVE);
    worker.set_blocks_total(2912);
    worker.set_blocks_free(1877);
    worker.set_step_ms(10.3217);
    worker.mutable_engine()->set_steps(1234567);
    worker.mutable_engine()->set_rows(12345678);
    worker.mutable_engine()->set_execute_seconds(12345.678901);
    for (int peer = i < 4 ? 4 : 0; peer < (i < 4 ? 8 : 4); ++peer) {
      v1::KvFlow& flow = *worker.add_kv_flows();
      flow.set_peer(absl::StrCat(i < 4 ? "decode" : "prefill", " 127.0.0.1:", 40000 + peer));
      flow.set_channel("shm");
      flow.set_bytes(1234567890);
      flow.set_busy_seconds(123.456789);
    }
  }
  return input;
}

void Text(benchmark::State& state) {
  const MetricsInput input = EightWorkers();
  size_t bytes = 0;
  for (auto _ : state) bytes = MetricsText(input).size();
  state.counters["bytes"] = double(bytes);
}
BENCHMARK(Text);

}  // namespace
}  // namespace sluice::router

BENCHMARK_MAIN();
