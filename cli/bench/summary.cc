#include "cli/bench/summary.h"

#include <algorithm>
#include <cmath>

namespace sluice::cli::bench {
namespace {

constexpr double kZ = 1.959963984540054;  // of a normal distribution, 95 % lie within

struct Values {
  std::vector<double> ttft, tpot, itl, largest, first, e2e;

  void Add(const Record& record) {
    ttft.push_back(TtftMs(record));
    e2e.push_back(E2eMs(record));
    if (record.output_tokens >= 2) tpot.push_back(TpotMs(record));
    if (record.gaps_ms.empty()) return;
    itl.insert(itl.end(), record.gaps_ms.begin(), record.gaps_ms.end());
    largest.push_back(*std::max_element(record.gaps_ms.begin(), record.gaps_ms.end()));
    first.push_back(record.gaps_ms.front());
  }
};

void Count(const Record& record, const Slo& slo, Summary& summary) {
  summary.offered += 1;
  summary.failed += record.outcome == Outcome::kFailed;
  summary.abandoned += record.outcome == Outcome::kAbandoned || record.outcome == Outcome::kRunning;
  summary.good += IsGood(record, slo);
  if (record.outcome != Outcome::kDone) return;
  summary.done += 1;
  summary.short_answers += record.output_tokens < record.wanted_tokens;
  summary.prompt_tokens += record.prompt_tokens;
  summary.cached_tokens += record.cached_tokens;
  summary.output_tokens += record.output_tokens;
}

}  // namespace

double Percentile(const std::vector<double>& sorted, double share) {
  const double at = share * double(sorted.size() - 1);
  const size_t low = size_t(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - double(low));
}

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  return {int(values.size()),      sum / double(values.size()), Percentile(values, 0.5),
          Percentile(values, 0.9), Percentile(values, 0.99),    values.back()};
}

Interval Wilson(int good, int offered) {
  if (offered <= 0) return {};
  const double n = offered, share = good / n, square = kZ * kZ;
  const double centre = (share + square / (2 * n)) / (1 + square / n);
  const double half = kZ / (1 + square / n) * std::sqrt(share * (1 - share) / n + square / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

double TtftMs(const Record& record) {
  return (record.first_s - record.scheduled_s) * 1000;
}
double TpotMs(const Record& record) {
  return (record.last_s - record.first_s) * 1000 / (record.output_tokens - 1);
}
double E2eMs(const Record& record) {
  return (record.last_s - record.scheduled_s) * 1000;
}

bool IsGood(const Record& record, const Slo& slo) {
  if (record.outcome != Outcome::kDone) return false;
  if (slo.ttft_ms && !(TtftMs(record) <= *slo.ttft_ms)) return false;
  return !slo.tpot_ms || record.output_tokens < 2 || TpotMs(record) <= *slo.tpot_ms;
}

Summary Summarize(const std::vector<Record>& records, const Slo& slo) {
  Summary summary;
  Values values;
  std::vector<double> slip;
  double begin = 0, last_arrival = 0, end = 0;
  for (const Record& record : records) {
    if (record.sent_s < 0) continue;
    begin = summary.offered == 0 ? record.scheduled_s : std::min(begin, record.scheduled_s);
    last_arrival = std::max(last_arrival, record.scheduled_s);
    end = std::max({end, record.sent_s, record.ended_s});
    Count(record, slo, summary);
    slip.push_back((record.sent_s - record.scheduled_s) * 1000);
    if (record.outcome == Outcome::kDone) values.Add(record);
  }
  if (summary.offered == 0) return summary;
  summary.attainment = double(summary.good) / summary.offered;
  summary.interval = Wilson(summary.good, summary.offered);
  summary.duration_s = end - begin;
  if (last_arrival > begin) summary.offered_rate = (summary.offered - 1) / (last_arrival - begin);
  if (summary.duration_s > 0) {
    summary.done_rate = summary.done / summary.duration_s;
    summary.good_rate = summary.good / summary.duration_s;
    summary.output_tokens_per_s = double(summary.output_tokens) / summary.duration_s;
  }
  summary.ttft_ms = SpreadOf(std::move(values.ttft));
  summary.tpot_ms = SpreadOf(std::move(values.tpot));
  summary.itl_ms = SpreadOf(std::move(values.itl));
  summary.largest_gap_ms = SpreadOf(std::move(values.largest));
  summary.first_gap_ms = SpreadOf(std::move(values.first));
  summary.e2e_ms = SpreadOf(std::move(values.e2e));
  summary.slip_ms = SpreadOf(std::move(slip));
  return summary;
}

}  // namespace sluice::cli::bench
