#include "cli/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Answer(const std::vector<std::tuple<std::string, double, std::string>>& entries) {
  json timeline = json::array();
  for (const auto& [name, at, worker] : entries)
    timeline.push_back({{"name", name}, {"at_ms", at}, {"worker", worker}});
  return {{"request_id", "r"}, {"timing", {{"timeline", timeline}}}};
}

// "name worker from..to" of each span.
std::vector<std::string> SpansOf(const json& trace) {
  std::map<int, std::string> names;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] == "M") names[e["pid"]] = e["args"]["name"];
  }
  std::vector<std::string> spans;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    spans.push_back(absl::StrCat(e["name"].get<std::string>(), " ", names[e["pid"]], " ", e["ts"].get<double>() / 1000,
                                 "..", (e["ts"].get<double>() + e["dur"].get<double>()) / 1000));
  }
  return spans;
}

TEST(TraceTest, SpansOfARequestAcrossItsWorkers) {
  const json answer = Answer({{"queued", 0, ""},
                              {"reserved", 1, "D"},
                              {"prefilling", 1, "P"},
                              {"prefill_chunk", 5, "P"},
                              {"first_token", 9, "P"},
                              {"committed", 11, "D"},
                              {"done", 30, "D"}});
  const absl::StatusOr<json> trace = ChromeTrace({answer});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(SpansOf(*trace), ElementsAre("queued router 0..1", "reserved D 1..11", "prefill P 1..9",
                                           "transfer D 9..11", "decode D 11..30"));
}

TEST(TraceTest, AMoveIsATimeInTheQueue) {
  const json answer = Answer({{"queued", 0, ""},
                              {"reserved", 1, "B"},
                              {"first_token", 3, "B"},
                              {"moved", 10, "B"},
                              {"reserved", 40, "C"},
                              {"done", 60, "C"}});
  const absl::StatusOr<json> trace = ChromeTrace({answer});
  ASSERT_TRUE(trace.ok());
  EXPECT_THAT(SpansOf(*trace),
              ElementsAre("queued router 0..1", "reserved B 1..10", "queued again router 10..40", "reserved C 40..60"));
}

TEST(TraceTest, NamesWhatIsNoAnswer) {
  const absl::Status status = ChromeTrace({Answer({}), json({{"text", "x"}})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("object 2 has no timing.timeline"));
  EXPECT_FALSE(ChromeTrace({json::array()}).ok());
  EXPECT_FALSE(ChromeTrace({json({{"timing", {{"timeline", {1}}}}})}).ok());
}

}  // namespace
}  // namespace sluice::cli
