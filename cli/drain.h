// `sluice drain HOST:PORT`: a worker gets no new requests, and the command returns when it has none any more.
#pragma once

#include <string>

namespace sluice::cli {

struct DrainOptions {
  std::string router = "localhost:50051";
  std::string worker;      // HOST:PORT
  bool hand_over = false;  // what it decodes goes on elsewhere
  double timeout_s = 600;  // to wait for it; 0: do not wait
};

// Asks the router, waits with progress on stderr; returns the exit code.
int RunDrain(const DrainOptions& options);

}  // namespace sluice::cli
