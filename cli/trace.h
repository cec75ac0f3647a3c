// `sluice trace`: the timelines of answers as a Chrome trace, for chrome://tracing or ui.perfetto.dev.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace sluice::cli {

struct TraceOptions {
  std::string file = "-";  // objects of `sluice generate --json`, one after the other; -: standard input
};

// A process for the router and one for each worker, a thread for each request. Spans: queued, reserve, prefill,
// transfer, decode; instants: everything else of a timeline. Requests begin side by side at 0: each one's clock starts
// when the router has received it. INVALID_ARGUMENT names the answer without a timeline. Pure.
absl::StatusOr<nlohmann::json> ChromeTrace(const std::vector<nlohmann::json>& answers);

// Reads, converts, prints; returns the exit code.
int RunTrace(const TraceOptions& options);

}  // namespace sluice::cli
