#include "cli/bench/report.h"

#include <limits>

#include "cli/bench/plot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

RunReport Example() {
  RunReport run;
  run.rate = 2;
  run.slo = {100, 50};
  for (int i = 0; i < 10; ++i) {
    Record record;
    record.scheduled_s = record.sent_s = i * 0.5;
    record.first_s = record.scheduled_s + 0.05 + 0.01 * i;
    record.last_s = record.ended_s = record.first_s + 0.02;
    record.gaps_ms = {20};
    record.output_tokens = record.wanted_tokens = 2;
    record.prompt_tokens = 7;
    record.outcome = Outcome::kDone;
    run.records.push_back(record);
  }
  run.records[9].outcome = Outcome::kFailed;
  run.records[9].error = "UNAVAILABLE: no live worker";
  run.records.emplace_back();  // never sent
  run.summary = Summarize(run.records, run.slo);
  run.cost = {0.01, 0.002, 1000, 500};
  return run;
}

TEST(ReportTest, TheTableSaysWhatHappened) {
  const std::string table = RunTable(Example());
  EXPECT_THAT(table, HasSubstr("10 offered (2.000/s; 2/s asked), 9 done, 1 failed, 0 abandoned"));
  EXPECT_THAT(table, HasSubstr("1 x UNAVAILABLE: no live worker"));
  EXPECT_THAT(table,
              HasSubstr("attainment 60.0 % (6 of 10; 95 % interval 31.3 to 83.2 %) of TTFT <= 100 ms, TPOT <= 50 ms"));
  EXPECT_THAT(table, HasSubstr("63 prompt (0 cached), 18 generated"));
  EXPECT_THAT(table, HasSubstr("1000 us per request"));
  EXPECT_THAT(table, Not(HasSubstr("WARNING")));
}

TEST(ReportTest, AnEmptyRunIsNoError) {
  RunReport run;
  run.rate = std::numeric_limits<double>::infinity();
  EXPECT_THAT(RunTable(run), HasSubstr("0 offered"));
  EXPECT_EQ(RunJson(run)["rate"], "inf");
  EXPECT_EQ(RunJson(run)["records"].size(), 0u);
  EXPECT_THAT(PlotSvg(run), HasSubstr("</svg>"));
}

TEST(ReportTest, JsonHasEveryRecordThatWasSent) {
  const nlohmann::json out = RunJson(Example());
  ASSERT_EQ(out["records"].size(), 10u);
  EXPECT_EQ(out["records"][0]["gaps_ms"], nlohmann::json({20.0}));
  EXPECT_EQ(out["records"][9]["status"], "failed");
  EXPECT_EQ(out["summary"]["good"], 6);
  EXPECT_EQ(out["summary"]["ttft_ms"]["n"], 9);
}

TEST(ReportTest, ALateClientIsSeen) {
  RunReport run = Example();
  for (Record& record : run.records) {
    if (record.sent_s >= 0) record.sent_s += 0.01;
  }
  run.summary = Summarize(run.records, run.slo);
  EXPECT_THAT(RunTable(run), HasSubstr("WARNING: this client was late itself"));
}

TEST(ReportTest, GoodputNamesEveryRate) {
  GoodputSearch search({});
  EXPECT_THAT(GoodputTable(search, {}), HasSubstr("none of these rates"));
  search.Took(4, 190, 200);
  search.Took(8, 100, 200);
  const std::string table = GoodputTable(search, {});
  EXPECT_THAT(table, HasSubstr("goodput: 4 requests/s keep 90 % (attainment 95.0 %"));
  EXPECT_THAT(table, HasSubstr("8 do not"));
  EXPECT_EQ(GoodputJson(search, {})["tries"].size(), 2u);
  EXPECT_EQ(GoodputJson(search, {})["goodput"], 4.0);
}

TEST(PlotTest, ThreePanelsInASmallFile) {
  RunReport run = Example();
  const std::string svg = PlotSvg(run);
  for (const char* part : {"<svg ", "TTFT", "TPOT", "scheduled arrival", "<polyline ", "</svg>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  while (run.records.size() < 20000) run.records.push_back(run.records[size_t(run.records.size()) % 10]);
  EXPECT_LT(PlotSvg(run).size(), 150000u);
}

}  // namespace
}  // namespace sluice::cli::bench
