#include "router/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::router {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, WorkersAndTheKvBetweenThem) {
  v1::ClusterState state;
  state.set_queued(3);
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
  const std::string text = MetricsText(state);
  EXPECT_THAT(text, HasSubstr("# TYPE sluice_requests_queued gauge\nsluice_requests_queued 3\n"));
  EXPECT_THAT(text, HasSubstr("sluice_worker_up{role=\"prefill\",worker=\"10.0.0.1:7001\",state=\"active\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sluice_kv_blocks_free{role=\"prefill\",worker=\"10.0.0.1:7001\"} 60\n"));
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

TEST(Metrics, AnEmptyClusterToo) {
  EXPECT_THAT(MetricsText({}), HasSubstr("sluice_requests_running 0\n"));
  EXPECT_THAT(MetricsText({}), Not(HasSubstr("peer=")));
}

}  // namespace
}  // namespace sluice::router
