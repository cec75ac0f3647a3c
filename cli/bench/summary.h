// The figures of a run from its records. Pure.
//
// TTFT: from the scheduled arrival to the first token. TPOT: (last - first) / (tokens - 1). ITL: every gap of every
// request. E2E: from the scheduled arrival to the last token. They are of requests that were done; the others are
// counted and are never good.
#pragma once

#include <optional>
#include <vector>

#include "cli/bench/record.h"

namespace sluice::cli::bench {

// By linear interpolation between the two nearest ranks; `sorted` is ascending and not empty, 0 <= share <= 1.
double Percentile(const std::vector<double>& sorted, double share);

struct Spread {
  int n = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;  // all 0 where n is
};
Spread SpreadOf(std::vector<double> values);

// Wilson's 95 % interval of a share; [0, 1] where nothing was tried.
struct Interval {
  double low = 0, high = 1;
};
Interval Wilson(int good, int offered);

struct Slo {
  std::optional<double> ttft_ms, tpot_ms;

  bool any() const { return ttft_ms || tpot_ms; }
};

double TtftMs(const Record& record);
double TpotMs(const Record& record);  // needs two tokens
double E2eMs(const Record& record);

// Whether it was done and met what is asked of it; an answer of one token is judged by its TTFT alone.
bool IsGood(const Record& record, const Slo& slo);

struct Summary {
  int offered = 0, done = 0, failed = 0, abandoned = 0, good = 0;
  double attainment = 0;  // good / offered
  Interval interval;
  double duration_s = 0;                                  // from the first scheduled arrival to the last end
  double offered_rate = 0, done_rate = 0, good_rate = 0;  // requests per second; offered: between scheduled arrivals
  double output_tokens_per_s = 0;
  long prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of those that were done
  int short_answers = 0;                                         // done with fewer tokens than asked for
  Spread ttft_ms, tpot_ms, itl_ms, largest_gap_ms, first_gap_ms, e2e_ms;
  Spread slip_ms;  // how late requests were sent, of all that were sent
};

// Records that were not sent are left out: their run was interrupted before.
Summary Summarize(const std::vector<Record>& records, const Slo& slo);

}  // namespace sluice::cli::bench
