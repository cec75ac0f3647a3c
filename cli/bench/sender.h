// Who carries requests of a benchmark to a server. Start never waits for the network; what comes back goes to the
// Recorder from the sender's own threads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/bench/recorder.h"
#include "cli/bench/workload.h"

namespace sluice::cli::bench {

struct SenderOptions {
  std::string address;   // HOST:PORT
  int connections = 4;   // of gRPC; HTTP has one for each request under way
  double timeout_s = 0;  // of a request, from when it was sent; 0: none
  double temperature = 0;
  bool ignore_eos = true;
  uint64_t seed = 0;
};

// What the server says about itself; 0 or empty: it does not.
struct TargetInfo {
  std::string model;
  int context = 0;
  int vocabulary = 0;
};

class Sender {
 public:
  virtual ~Sender() = default;

  virtual absl::StatusOr<TargetInfo> Ask() = 0;
  // `recorder` hears of it until it has ended; one run at a time.
  virtual void Start(Recorder& recorder, int index, const PlannedRequest& request) = 0;
  // What is under way ends soon, as abandoned.
  virtual void CancelAll() = 0;
};

}  // namespace sluice::cli::bench
