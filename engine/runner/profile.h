// How fast an engine is, from a few steps of its own before it has any request.
//
// The steps compute a made-up sequence in the first blocks of a pool that nobody uses yet: what they leave there is
// never read, nothing is allocated, cached or counted. The fastest of several steps counts, since whatever else the
// machine does only makes them slower; the first, which touches every weight for the first time, only where there is no
// other.
//
// The time is bounded, beside that first step, but for a step that takes longer than was to be expected: one is begun
// only while, as far as those before it tell, there is time for it.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runner/step.h"

namespace sluice::engine {

struct EngineProfile {
  double prefill_tokens_per_s = 0;  // of one prompt; 0: there was no time for it
  double decode_step_ms = 0;        // of one row
};

struct ProfileLimits {
  int block_size = 16;
  int num_blocks = 0;
  int max_context = 0;
  int max_step_tokens = 0;
  int vocab = 0;
  double seconds = 0;  // that it may take, beside the very first step
};

// One sequence's tokens [begin, end) in the blocks from 0 on, which hold those before already; `samples`: and the token
// that follows is drawn. REQUIRES: 0 <= begin < end, and the pool has the blocks.
StepWork ScratchStep(int begin, int end, bool samples, int block_size, int vocab);

// `execute` runs a step, `seconds` is a clock. An error is that of a step.
absl::StatusOr<EngineProfile> MeasureProfile(const ProfileLimits& limits,
                                             const std::function<absl::Status(StepWork&)>& execute,
                                             const std::function<double()>& seconds);

}  // namespace sluice::engine
