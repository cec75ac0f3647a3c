#include "cli/bench/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::cli::bench {
namespace {

using nlohmann::json;

constexpr size_t kMostErrors = 5;

json SpreadJson(const Spread& spread) {
  return {{"n", spread.n},     {"mean", spread.mean}, {"p50", spread.p50},
          {"p90", spread.p90}, {"p99", spread.p99},   {"max", spread.max}};
}

json Optional(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}

// JSON has no infinity.
json Rate(double rate) {
  return std::isfinite(rate) ? json(rate) : json("inf");
}

json RecordJson(const Record& record) {
  return {{"scheduled_s", record.scheduled_s},
          {"sent_s", record.sent_s},
          {"first_s", record.first_s},
          {"last_s", record.last_s},
          {"ended_s", record.ended_s},
          {"gaps_ms", record.gaps_ms},
          {"wanted_tokens", record.wanted_tokens},
          {"prompt_tokens", record.prompt_tokens},
          {"cached_tokens", record.cached_tokens},
          {"output_tokens", record.output_tokens},
          {"status", OutcomeName(record.outcome)},
          {"error", record.error}};
}

void AddRow(std::string& out, const char* name, const Spread& s) {
  if (s.n == 0) {
    absl::StrAppendFormat(&out, "%-16s %10s\n", name, "-");
    return;
  }
  absl::StrAppendFormat(&out, "%-16s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, s.mean, s.p50, s.p90, s.p99, s.max);
}

std::string Errors(const std::vector<Record>& records) {
  std::map<std::string, int> counts;
  for (const Record& record : records) {
    if (record.sent_s >= 0 && !record.error.empty()) ++counts[record.error];
  }
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [error, count] : counts) sorted.emplace_back(count, error);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string out;
  for (size_t i = 0; i < sorted.size() && i < kMostErrors; ++i) {
    absl::StrAppendFormat(&out, "  %d x %s\n", sorted[i].first, sorted[i].second.substr(0, 160));
  }
  if (sorted.size() > kMostErrors) absl::StrAppend(&out, "  and ", sorted.size() - kMostErrors, " other errors\n");
  return out;
}

std::string SloText(const Slo& slo) {
  std::string out;
  if (slo.ttft_ms) absl::StrAppend(&out, "TTFT <= ", *slo.ttft_ms, " ms");
  if (slo.tpot_ms) absl::StrAppend(&out, out.empty() ? "" : ", ", "TPOT <= ", *slo.tpot_ms, " ms");
  return out;
}

std::string RateText(double rate) {
  return std::isfinite(rate) ? absl::StrFormat("%.4g/s asked", rate) : std::string("as fast as it goes");
}

}  // namespace

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return "done";
    case Outcome::kFailed:
      return "failed";
    default:
      return "abandoned";
  }
}

json SummaryJson(const RunReport& run) {
  const Summary& s = run.summary;
  return {{"offered", s.offered},
          {"done", s.done},
          {"failed", s.failed},
          {"abandoned", s.abandoned},
          {"good", s.good},
          {"attainment", s.attainment},
          {"attainment_low", s.interval.low},
          {"attainment_high", s.interval.high},
          {"ttft_slo_ms", Optional(run.slo.ttft_ms)},
          {"tpot_slo_ms", Optional(run.slo.tpot_ms)},
          {"duration_s", s.duration_s},
          {"offered_rate", s.offered_rate},
          {"done_rate", s.done_rate},
          {"good_rate", s.good_rate},
          {"output_tokens_per_s", s.output_tokens_per_s},
          {"prompt_tokens", s.prompt_tokens},
          {"cached_tokens", s.cached_tokens},
          {"output_tokens", s.output_tokens},
          {"short_answers", s.short_answers},
          {"ttft_ms", SpreadJson(s.ttft_ms)},
          {"tpot_ms", SpreadJson(s.tpot_ms)},
          {"itl_ms", SpreadJson(s.itl_ms)},
          {"largest_gap_ms", SpreadJson(s.largest_gap_ms)},
          {"first_gap_ms", SpreadJson(s.first_gap_ms)},
          {"e2e_ms", SpreadJson(s.e2e_ms)},
          {"slip_ms", SpreadJson(s.slip_ms)},
          {"client",
           {{"cpu_s", run.cost.cpu_s},
            {"cpu_share", run.cost.cpu_share},
            {"us_per_request", run.cost.us_per_request},
            {"us_per_token", run.cost.us_per_token}}}};
}

json RunJson(const RunReport& run) {
  json records = json::array();
  for (const Record& record : run.records) {
    if (record.sent_s >= 0) records.push_back(RecordJson(record));
  }
  return {{"rate", Rate(run.rate)}, {"summary", SummaryJson(run)}, {"records", std::move(records)}};
}

json GoodputJson(const GoodputSearch& search, const GoodputOptions& options) {
  json tries = json::array();
  for (const RateTry& t : search.tries()) {
    tries.push_back({{"rate", t.rate},
                     {"good", t.good},
                     {"offered", t.offered},
                     {"attainment", t.offered > 0 ? double(t.good) / t.offered : 0.0},
                     {"attainment_low", t.interval.low},
                     {"attainment_high", t.interval.high},
                     {"kept", t.kept}});
  }
  return {{"share", options.share},
          {"goodput", search.best() != nullptr ? json(search.best()->rate) : json(nullptr)},
          {"failed_at", search.worst() != nullptr ? json(search.worst()->rate) : json(nullptr)},
          {"tries", std::move(tries)}};
}

std::string SlipWarning(const Summary& summary) {
  const double p99 = summary.slip_ms.p99;
  if (p99 <= 1 || p99 <= summary.ttft_ms.p50 / 20) return "";
  return absl::StrFormat(
      "WARNING: this client was late itself: 1 %% of the requests were sent %.1f ms or more after their time, which "
      "their TTFT contains\n",
      p99);
}

std::string RunTable(const RunReport& run) {
  const Summary& s = run.summary;
  std::string out =
      absl::StrFormat("requests   %d offered (%.3f/s; %s), %d done, %d failed, %d abandoned, in %.2f s\n", s.offered,
                      s.offered_rate, RateText(run.rate), s.done, s.failed, s.abandoned, s.duration_s);
  absl::StrAppend(&out, Errors(run.records));
  absl::StrAppendFormat(&out, "tokens     %d prompt (%d cached), %d generated, %.1f generated/s\n", s.prompt_tokens,
                        s.cached_tokens, s.output_tokens, s.output_tokens_per_s);
  if (s.short_answers > 0)
    absl::StrAppendFormat(&out, "           %d answers were shorter than asked for\n", s.short_answers);
  if (run.slo.any()) {
    absl::StrAppendFormat(&out, "attainment %.1f %% (%d of %d; 95 %% interval %.1f to %.1f %%) of %s; %.3f good/s\n",
                          100 * s.attainment, s.good, s.offered, 100 * s.interval.low, 100 * s.interval.high,
                          SloText(run.slo), s.good_rate);
  }
  absl::StrAppendFormat(&out, "\n%-16s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
  AddRow(out, "TTFT", s.ttft_ms);
  AddRow(out, "TPOT", s.tpot_ms);
  AddRow(out, "ITL", s.itl_ms);
  AddRow(out, "largest gap", s.largest_gap_ms);
  AddRow(out, "gap 1 to 2", s.first_gap_ms);
  AddRow(out, "E2E", s.e2e_ms);
  AddRow(out, "sent late", s.slip_ms);
  absl::StrAppendFormat(&out, "\nthis client: %.1f %% of a core, %.0f us per request, %.1f us per token\n",
                        100 * run.cost.cpu_share, run.cost.us_per_request, run.cost.us_per_token);
  return out + SlipWarning(s);
}

std::string GoodputTable(const GoodputSearch& search, const GoodputOptions& options) {
  std::string out = absl::StrFormat("%10s %10s %8s   %s\n", "rate/s", "good", "of", "attainment, 95 % interval");
  for (const RateTry& t : search.tries()) {
    absl::StrAppendFormat(&out, "%10.4g %10d %8d   %5.1f %%, %.1f to %.1f%s\n", t.rate, t.good, t.offered,
                          t.offered > 0 ? 100.0 * t.good / t.offered : 0.0, 100 * t.interval.low, 100 * t.interval.high,
                          t.kept ? "" : "  (below)");
  }
  const RateTry* best = search.best();
  const RateTry* worst = search.worst();
  if (best == nullptr) return out + "goodput: none of these rates kept the share\n";
  absl::StrAppendFormat(
      &out, "goodput: %.4g requests/s keep %.0f %% (attainment %.1f %%, 95 %% interval %.1f to %.1f %%)", best->rate,
      100 * options.share, 100.0 * best->good / best->offered, 100 * best->interval.low, 100 * best->interval.high);
  if (worst != nullptr) absl::StrAppendFormat(&out, ", %.4g do not", worst->rate);
  return out + "\n";
}

}  // namespace sluice::cli::bench
