#include "router/metrics.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::router {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, WorkersAndTheKvBetweenThem) {
  MetricsInput input;
  v1::ClusterState& state = input.state;
  state.set_queued(3);
  input.counters.workers_lost[v1::ROLE_DECODE] = 2;
  v1::WorkerStatus& worker = *state.add_workers();
  worker.set_role(v1::ROLE_PREFILL);
  worker.set_host("10.0.0.1");
  worker.set_port(7001);
  worker.set_state(v1::WORKER_STATE_ACTIVE);
  worker.set_blocks_total(64);
  worker.set_blocks_free(60);
  v1::KvFlow& flow = *worker.add_kv_flows();
  flow.set_peer("decode 10.0.0.2:7002");
  flow.set_channel("tcp");
  flow.set_bytes(1234);
  flow.set_transfers(2);
  flow.set_exposed_seconds(0.25);
  for (int i = 0; i < 2; ++i) {  // two lives of peers that nobody knows any more are one
    v1::KvFlow& gone = *worker.add_kv_flows();
    gone.set_bytes(10);
    gone.set_corrupt_pieces(1);
  }
  const std::string text = MetricsText(input);
  EXPECT_THAT(text, HasSubstr("# TYPE sluice_num_requests_waiting gauge\nsluice_num_requests_waiting 3\n"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_up{role=\"prefill\",worker=\"10.0.0.1:7001\",state=\"active\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sluice_kv_blocks_free{role=\"prefill\",worker=\"10.0.0.1:7001\"} 60\n"));
  EXPECT_THAT(text, HasSubstr("sluice_kv_cache_usage_perc{role=\"prefill\",worker=\"10.0.0.1:7001\"} 0.0625\n"));
  EXPECT_THAT(text, HasSubstr("sluice_workers{role=\"prefill\",state=\"active\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sluice_workers{role=\"decode\",state=\"active\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("sluice_workers_lost_total{role=\"decode\"} 2\n"));
  const std::string pair = "{role=\"prefill\",worker=\"10.0.0.1:7001\",peer=\"decode 10.0.0.2:7002\"}";
  EXPECT_THAT(text, HasSubstr("# TYPE sluice_kv_transfer_bytes_total counter\n"));
  EXPECT_THAT(text, HasSubstr("sluice_kv_transfer_bytes_total" + pair + " 1234\n"));
  EXPECT_THAT(text, HasSubstr("sluice_kv_transfers_committed_total" + pair + " 2\n"));
  EXPECT_THAT(text, HasSubstr("sluice_kv_transfer_exposed_seconds_total" + pair + " 0.25\n"));
  EXPECT_THAT(text, HasSubstr("sluice_kv_pair_up" + pair + " 1\n"));
  EXPECT_THAT(
      text, HasSubstr("sluice_kv_transfer_bytes_total{role=\"prefill\",worker=\"10.0.0.1:7001\",peer=\"gone\"} 20\n"));
  EXPECT_THAT(text, HasSubstr("peer=\"gone\"} 2\n")) << "wrong checksums";
}

TEST(Metrics, Requests) {
  MetricsInput input;
  input.requests.FirstToken(absl::Milliseconds(30));
  input.requests.FirstToken(absl::Seconds(1000));
  input.requests.Tokens(5, std::nullopt);
  input.requests.RefusedAtEdge(absl::StatusCode::kInvalidArgument, 3);
  const std::string text = MetricsText(input);
  EXPECT_THAT(text, HasSubstr("# TYPE sluice_time_to_first_token_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("sluice_time_to_first_token_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("sluice_time_to_first_token_seconds_bucket{le=\"0.02\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("sluice_time_to_first_token_seconds_bucket{le=\"0.04\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sluice_time_to_first_token_seconds_bucket{le=\"160\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sluice_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("sluice_generation_tokens_total 5\n"));
  EXPECT_THAT(text, HasSubstr("sluice_requests_refused_total{reason=\"invalid_argument\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("sluice_request_success_total{finished_reason=\"stop\"} 0\n"));
}

// A series must not come twice: Prometheus would refuse it.
TEST(Metrics, LivesOfOneAddressAreNotConfused) {
  MetricsInput input;
  for (const v1::WorkerState state : {v1::WORKER_STATE_GONE, v1::WORKER_STATE_GONE, v1::WORKER_STATE_ACTIVE}) {
    v1::WorkerStatus& worker = *input.state.add_workers();
    worker.set_role(v1::ROLE_BOTH);
    worker.set_host("h");
    worker.set_port(1);
    worker.set_state(state);
    worker.set_blocks_total(10);
  }
  const std::string text = MetricsText(input);
  std::set<std::string> series;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#")) continue;
    EXPECT_TRUE(series.emplace(line.substr(0, line.rfind(' '))).second) << line;
  }
  EXPECT_THAT(text, HasSubstr("sluice_workers{role=\"both\",state=\"gone\"} 2\n"));
}

TEST(Metrics, AnEmptyClusterToo) {
  EXPECT_THAT(MetricsText({}), HasSubstr("sluice_num_requests_running 0\n"));
  EXPECT_THAT(MetricsText({}), Not(HasSubstr("peer=")));
}

}  // namespace
}  // namespace sluice::router
