// What a simulated worker is: how much it holds and how long its steps take. A step takes the longer of computing its
// tokens and reading what it needs from memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace sluice::simulation {

namespace pb = ::sluice::v1;

struct WorkerModel {
  pb::Role role = pb::ROLE_BOTH;
  int64_t blocks = 100;
  int block_size = 16;
  int max_running = 8;
  int max_step_tokens = 128;
  int context_length = 2048;

  double tokens_per_s = 20000;                       // computed, of prompts and answers
  absl::Duration step_base = absl::Milliseconds(5);  // weights from memory
  double context_us = 0.05;                          // KV from memory, for each token of a row's context
  double kv_tokens_per_s = 100000;                   // of KV that leave, all transfers together
  int64_t kv_bytes_per_token = 4096;

  absl::Duration lease = absl::Seconds(3);
  absl::Duration stuck_after = absl::Seconds(1);  // a step that takes longer is no step
  bool caches_prefixes = true;
  // Of a worker on which nothing but decode rows runs: so many steps at once, in one message. More than one makes large
  // simulations faster and lets what arrives meanwhile wait a little longer.
  int steps_at_once = 1;
  int kind = 0;  // workers of different kinds do not fit each other

  // How often things go wrong, in one of so many cases; 0: never.
  int refuse_one_in = 0;   // a Reserve or Prefill
  int fail_one_in = 0;     // a request in a step
  int corrupt_one_in = 0;  // a transfer
  int lose_one_in = 0;     // likewise: its bytes never arrive

  absl::Duration StepTime(int64_t tokens, int64_t context) const {
    const absl::Duration compute = absl::Seconds(double(tokens) / tokens_per_s);
    return std::max(compute, step_base + absl::Microseconds(double(context) * context_us));
  }
};

}  // namespace sluice::simulation
