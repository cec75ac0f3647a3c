#include "cli/status.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

v1::ClusterState Example() {
  v1::ClusterState state;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(workers { role: ROLE_BOTH pid: 12 port: 4000 state: WORKER_STATE_ACTIVE blocks_total: 100 blocks_free: 90
                   running: 2 waiting: 1 host: "h" incarnation: 18446744073709551615 numerics: "f32.1" }
         workers { role: ROLE_PREFILL pid: 123456 port: 4001 state: WORKER_STATE_SUSPECT }
         model: "tiny" context_length: 64 queued: 3 running: 2)",
      &state));
  return state;
}

TEST(StatusTest, JsonCarriesWhatTheDesignNames) {
  nlohmann::json out = StateJson(Example());
  nlohmann::json worker = out["workers"][0];
  EXPECT_EQ(worker["role"], "both");
  EXPECT_EQ(worker["pid"], 12);
  EXPECT_EQ(worker["port"], 4000);
  EXPECT_EQ(worker["state"], "active");
  EXPECT_EQ(worker["blocks_total"], 100);
  EXPECT_EQ(worker["blocks_free"], 90);
  EXPECT_EQ(worker["running"], 2);
  EXPECT_EQ(worker["waiting"], 1);
  EXPECT_EQ(worker["incarnation"], "18446744073709551615");
  EXPECT_EQ(out["workers"][1]["state"], "suspect");
  EXPECT_EQ(out["queued"], 3);
}

TEST(StatusTest, JsonOfAnEmptyClusterHasAnEmptyList) {
  EXPECT_EQ(StateJson(v1::ClusterState())["workers"], nlohmann::json::array());
}

TEST(StatusTest, TableLinesUp) {
  EXPECT_EQ(StateTable(Example(), "localhost:1"),
            "router localhost:1  model tiny  context 64  queued 3  running 2\n"
            "ROLE     PID     PORT  STATE    BLOCKS FREE/TOTAL  RUNNING  WAITING  NUMERICS\n"
            "both     12      4000  active   90/100             2        1        f32.1\n"
            "prefill  123456  4001  suspect  0/0                0        0\n");
  EXPECT_THAT(StateTable(v1::ClusterState(), "a:1"), HasSubstr("no workers"));
}

}  // namespace
}  // namespace sluice::cli
