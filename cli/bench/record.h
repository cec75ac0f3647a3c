// What is known of one request of a benchmark. Times are seconds from the start of the run; -1: it did not happen.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli::bench {

enum class Outcome {
  kRunning,
  kDone,
  kFailed,     // an error of the server, or of the connection
  kAbandoned,  // by us: it took longer than --timeout, or the run was interrupted
};

struct Record {
  double scheduled_s = 0;
  double sent_s = -1;
  double first_s = -1;  // the first token, as it came in here
  double last_s = -1;
  double ended_s = -1;
  std::vector<double> gaps_ms;  // between tokens; tokens that came in one message have gaps of 0 after its first one
  int wanted_tokens = 0;        // what was asked for at most
  int prompt_tokens = 0;        // as sent, or as the server counts them where it says so
  int cached_tokens = 0;
  int output_tokens = 0;
  Outcome outcome = Outcome::kRunning;
  std::string error;
};

}  // namespace sluice::cli::bench
