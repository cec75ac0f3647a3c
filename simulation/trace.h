// Requests as others have recorded them (bench/traces): when they came, how long prompt and answer were, and which
// blocks of 512 tokens a prompt began with, where the trace says so.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::simulation {

inline constexpr int kTraceBlock = 512;  // tokens

struct TraceRequest {
  double at_s = 0;  // from the first one on
  int prompt_tokens = 0;
  int answer_tokens = 0;
  std::vector<uint64_t> blocks;  // equal numbers at the beginning are a shared prefix; empty: nothing is known
};

// Mooncake's JSON lines or Azure's CSV; ascending by time. Errors name the line.
absl::StatusOr<std::vector<TraceRequest>> ReadTrace(std::istream& in);
absl::StatusOr<std::vector<TraceRequest>> ReadTraceFile(const std::string& path);

}  // namespace sluice::simulation
