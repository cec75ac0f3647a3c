// What is asked: prompts of exact lengths in random token ids, and how long their answers may be. Pure; the same seed
// makes the same requests on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "simulation/trace.h"

namespace sluice::cli::bench {

// Uniform in [mean - range, mean + range], at least 1.
struct Lengths {
  int mean = 0, range = 0;
};
// "128" or "128:32". An error names the flag.
absl::StatusOr<Lengths> ParseLengths(const std::string& text, const std::string& flag);

// The ids that prompts are made of: [first, end).
struct TokenRange {
  int first = 0, end = 0;
};
// Of a vocabulary; its lowest ids are left out where it is large, since special tokens tend to be there.
TokenRange OrdinaryTokens(int vocabulary);

struct PlannedRequest {
  std::vector<int32_t> prompt;
  int max_tokens = 0;
};

struct RandomWorkload {
  Lengths input{128, 0}, output{32, 0};
  int shared_prefix_tokens = 0;  // before a prompt's own tokens, and beside their number
  int prefixes = 1;              // how many different ones
};
// Names what does not fit into the context (0: unknown).
absl::StatusOr<std::vector<PlannedRequest>> MakeRandom(const RandomWorkload& workload, int count, TokenRange tokens,
                                                       int context, uint64_t seed);

// Of a recorded trace: lengths divided by `divide`, arrivals `speed` times as fast. Prompts share the prefixes that the
// trace says. `cut` counts prompts and answers that were shortened to fit into the context.
struct TraceWorkload {
  std::vector<double> at_s;
  std::vector<PlannedRequest> requests;
  int cut = 0;
};
TraceWorkload MakeFromTrace(const std::vector<simulation::TraceRequest>& trace, int count, int divide, double speed,
                            TokenRange tokens, int context, uint64_t seed);

}  // namespace sluice::cli::bench
