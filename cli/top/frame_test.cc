#include "cli/top/frame.h"

#include "cli/models.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::ClusterState State(const std::string& text) {
  v1::ClusterState state;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &state)) << text;
  return state;
}

const char kThen[] = R"(
  model: "m" context_length: 100 queued: 3 running: 5
  workers { role: ROLE_DECODE host: "h" port: 1 incarnation: 7 state: WORKER_STATE_ACTIVE blocks_total: 10 blocks_free: 4
            running: 2 waiting: 1 numerics: "int8h.1" engine { steps: 10 rows: 100 drafted_tokens: 5 accepted_tokens: 5 } })";
const char kNow[] = R"(
  model: "m" context_length: 100 queued: 3 running: 5
  workers { role: ROLE_DECODE host: "h" port: 1 incarnation: 7 state: WORKER_STATE_ACTIVE blocks_total: 10 blocks_free: 4
            running: 2 waiting: 1 numerics: "int8h.1" engine { steps: 30 rows: 200 drafted_tokens: 25 accepted_tokens: 15 } }
  workers { role: ROLE_PREFILL host: "h" port: 2 incarnation: 8 state: WORKER_STATE_SUSPECT blocks_total: 20 blocks_free: 20 }
  workers { role: ROLE_DECODE host: "h" port: 3 state: WORKER_STATE_GONE blocks_total: 99 })";

Sample At(double at_s, const char* text) {
  return {at_s, State(text), std::nullopt};
}

TEST(TopTest, RatesAreBetweenTwoSamples) {
  const Sample then = At(1, kThen), now = At(3, kNow);
  const auto rate = RateOf(now.state.workers(0), now, &then);
  ASSERT_TRUE(rate.has_value());
  EXPECT_DOUBLE_EQ(rate->tokens_per_s, 45) << "100 rows, of which 10 were drafts that failed, in 2 s";
  EXPECT_DOUBLE_EQ(rate->steps_per_s, 10);
  EXPECT_DOUBLE_EQ(rate->rows_per_step, 5);
  EXPECT_FALSE(RateOf(now.state.workers(1), now, &then).has_value()) << "it was not there";
  EXPECT_FALSE(RateOf(now.state.workers(0), now, nullptr).has_value());
  Sample restarted = now;
  restarted.state.mutable_workers(0)->set_incarnation(9);
  EXPECT_FALSE(RateOf(restarted.state.workers(0), restarted, &then).has_value());
}

TEST(TopTest, FrameShowsPoolsWorkersAndTimes) {
  const Sample then = At(1, kThen);
  Sample now = At(3, kNow);
  std::string frame = TopFrame(now, &then, "r:1", 60);
  EXPECT_THAT(frame, HasSubstr("queued 3  running 5"));
  EXPECT_THAT(frame, HasSubstr("decode   1        1       6/10 (60%)   2        1        45.0"));
  EXPECT_THAT(frame, HasSubstr("suspect"));
  EXPECT_THAT(frame, HasSubstr("does not list its requests"));
  now.requests.emplace();
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(requests { state: "done" ended_ms: 10 completion_tokens: 5 timing { ttft_ms: 20 tpot_ms: 3 } }
         requests { state: "done" ended_ms: 10 completion_tokens: 1 timing { ttft_ms: 40 } }
         requests { state: "done" ended_ms: 90000 completion_tokens: 5 timing { ttft_ms: 9999 tpot_ms: 9999 } }
         requests { state: "failed" ended_ms: 5 }
         requests { state: "decoding" })",
      &*now.requests));
  frame = TopFrame(now, &then, "r:1", 60);
  EXPECT_THAT(frame, HasSubstr("of the last 60 s: 2 done, 1 failed   TTFT p50 30.0"));
  EXPECT_THAT(frame, HasSubstr("TPOT p50 3.0"));
  EXPECT_THAT(frame, Not(HasSubstr("9999")));
  const nlohmann::json out = TopJson(now, &then, 60);
  EXPECT_EQ(out["pools"]["decode"]["tokens_per_s"], 45.0);
  EXPECT_EQ(out["workers"][1]["tokens_per_s"], nullptr);
  EXPECT_EQ(out["recent"]["ttft_ms"]["p50"], 30.0);
}

TEST(TopTest, AScreenIsCutAndErasesTheRest) {
  EXPECT_EQ(Screen("abcdef\ngh\nij\n", 2, 4), "\x1b[?2026h\x1b[Habcd\x1b[K\r\ngh\x1b[K\x1b[J\x1b[?2026l");
}

TEST(ModelsTest, WhatGetsWork) {
  const v1::ClusterState state = State(kNow);
  const nlohmann::json out = ModelsJson(state);
  EXPECT_EQ(out["models"][0]["name"], "m");
  EXPECT_EQ(out["models"][0]["context_length"], 100);
  EXPECT_EQ(out["models"][0]["numerics"], nlohmann::json({"int8h.1"}));
  EXPECT_EQ(out["models"][0]["workers"]["decode"], 1);
  EXPECT_EQ(out["models"][0]["workers"]["prefill"], 0) << "a suspect worker gets none";
  EXPECT_THAT(ModelsTable(state), HasSubstr("1 decode"));
  EXPECT_EQ(ModelsJson({})["models"].size(), 0u);
}

}  // namespace
}  // namespace sluice::cli
