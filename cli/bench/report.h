// What a benchmark says at its end: JSON with every record, and a table for people. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/goodput_search.h"
#include "cli/bench/record.h"
#include "cli/bench/summary.h"
#include "nlohmann/json.hpp"

namespace sluice::cli::bench {

// What the client itself cost, while the run ran.
struct ClientCost {
  double cpu_s = 0;
  double cpu_share = 0;  // of one core
  double us_per_request = 0;
  double us_per_token = 0;  // all of it over the tokens that came; so it includes what requests cost
};

struct RunReport {
  double rate = 0;  // as asked for; infinite: as many as --max-concurrency lets
  Slo slo;
  Summary summary;
  ClientCost cost;
  std::vector<Record> records;
};

nlohmann::json SummaryJson(const RunReport& run);
// rate, summary and records; one object per request with every time in seconds and every gap in milliseconds.
nlohmann::json RunJson(const RunReport& run);
nlohmann::json GoodputJson(const GoodputSearch& search, const GoodputOptions& options);

std::string RunTable(const RunReport& run);
// A line per rate and the result.
std::string GoodputTable(const GoodputSearch& search, const GoodputOptions& options);

// How late the generator was, where that matters: empty, or a warning in a line. It does when the 99th percentile of
// the slip is more than a millisecond and a twentieth of the median TTFT.
std::string SlipWarning(const Summary& summary);

const char* OutcomeName(Outcome outcome);

}  // namespace sluice::cli::bench
