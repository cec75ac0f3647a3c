#include "engine/runner/profile.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "kernels/kv_layout.h"

namespace sluice::engine {
namespace {

constexpr double kWarmShare = 0.25;  // of what the very first step takes, as a guess
constexpr int kFirstChunk = 16;      // tokens
constexpr int kFirstCost = 4;        // of such a chunk, in steps of one row, as a guess
constexpr int kMostRepeats = 20;
constexpr double kRepeatShare = 0.1;  // of the time, for steps of one size
constexpr int kMostGrowth = 16;       // from chunk to chunk: devices that a few rows do not fill tell nothing of many

struct Seen {
  int rows = 1;
  double seconds = 0;
};

// By the line through the two largest steps that were seen.
double Predict(const Seen& before, const Seen& now, int rows) {
  if (now.rows == before.rows) return now.seconds * rows / now.rows;
  const double per_row = std::max(0.0, (now.seconds - before.seconds) / (now.rows - before.rows));
  return now.seconds + per_row * (rows - now.rows);
}

// Of a whole step's tokens, at most twice what was seen: a line through two points is noisy.
double TokensPerSecond(const Seen& before, const Seen& now, int step_tokens) {
  if (now.seconds <= 0) return 0;
  const double predicted = Predict(before, now, step_tokens);
  return std::min(step_tokens / predicted, 2 * now.rows / now.seconds);
}

class Measurement {
 public:
  Measurement(const ProfileLimits& limits, const std::function<absl::Status(StepWork&)>& execute,
              const std::function<double()>& seconds)
      : limits_(limits), execute_(execute), seconds_(seconds) {}

  absl::StatusOr<EngineProfile> Run() {
    const absl::StatusOr<double> cold = Once(1, true);
    if (!cold.ok()) return cold.status();
    give_up_ = seconds_() + limits_.seconds;
    decode_ = *cold;
    if (Left() < kWarmShare * decode_) return Profile();
    const absl::StatusOr<double> warm = Fastest(1, true);
    if (!warm.ok()) return warm.status();
    decode_ = *warm;
    if (absl::Status status = MeasureChunks(); !status.ok()) return status;
    if (Left() < decode_) return Profile();
    const absl::StatusOr<double> last = Fastest(1, true);
    if (!last.ok()) return last.status();
    decode_ = std::min(decode_, *last);
    return Profile();
  }

 private:
  double Left() const { return give_up_ - seconds_(); }
  EngineProfile Profile() const {
    return {.prefill_tokens_per_s = prefill_tokens_per_s_, .decode_step_ms = 1000 * decode_};
  }

  absl::StatusOr<double> Once(int rows, bool samples) {
    StepWork step = ScratchStep(0, rows, samples, limits_.block_size, limits_.vocab);
    const double began = seconds_();
    if (absl::Status status = execute_(step); !status.ok()) return status;
    return seconds_() - began;
  }

  // Steps that are short are made more often: they are the noisy ones.
  absl::StatusOr<double> Fastest(int rows, bool samples) {
    double fastest = 0, spent = 0;
    for (int i = 0; i < kMostRepeats; ++i) {
      const absl::StatusOr<double> took = Once(rows, samples);
      if (!took.ok()) return took.status();
      fastest = i == 0 ? *took : std::min(fastest, *took);
      spent += *took;
      if (spent + *took > kRepeatShare * limits_.seconds) break;
    }
    return fastest;
  }

  // Larger and larger ones, up to a whole step's tokens, while there is time for the next.
  absl::Status MeasureChunks() {
    const int largest =
        std::min({limits_.num_blocks * limits_.block_size, limits_.max_context, limits_.max_step_tokens});
    Seen before{1, decode_}, now{1, decode_};
    int rows = std::min(kFirstChunk, largest);
    double expected = std::min(rows, kFirstCost) * decode_;
    while (expected <= Left()) {
      const absl::StatusOr<double> took = Fastest(rows, false);
      if (!took.ok()) return took.status();
      if (now.rows < rows) before = now;
      now = {rows, *took};
      prefill_tokens_per_s_ = TokensPerSecond(before, now, largest);
      const double left = Left() - decode_;  // and one more step of one row
      int next = std::min(largest, kMostGrowth * rows);
      while (next > rows && (expected = Predict(before, now, next)) > left) next -= (next - rows + 1) / 2;
      if (next <= rows || (next < 2 * rows && next < largest)) break;  // it would tell little more
      rows = next;
    }
    return absl::OkStatus();
  }

  const ProfileLimits& limits_;
  const std::function<absl::Status(StepWork&)>& execute_;
  const std::function<double()>& seconds_;
  double give_up_ = 0;
  double decode_ = 0;
  double prefill_tokens_per_s_ = 0;
};

}  // namespace

StepWork ScratchStep(int begin, int end, bool samples, int block_size, int vocab) {
  StepWork step;
  StepInputs& in = step.inputs;
  for (int i = begin; i < end; ++i) in.tokens.push_back(int32_t((int64_t{i} * 31 + 1) % vocab));
  in.row_begin = {0, end - begin};
  in.context_len = {end};
  in.max_blocks = kernels::BlocksFor(end, block_size);
  in.block_table.resize(size_t(in.max_blocks));
  std::iota(in.block_table.begin(), in.block_table.end(), 0);
  SampleTask& task = step.tasks.emplace_back();
  if (!samples) return step;
  in.logit_rows = {end - begin - 1};
  SamplingParams greedy;
  greedy.temperature = 0;
  task.samples = true;
  task.states.push_back(std::make_shared<SampleState>(std::move(greedy), 0, in.tokens, end - begin));
  return step;
}

absl::StatusOr<EngineProfile> MeasureProfile(const ProfileLimits& limits,
                                             const std::function<absl::Status(StepWork&)>& execute,
                                             const std::function<double()>& seconds) {
  return Measurement(limits, execute, seconds).Run();
}

}  // namespace sluice::engine
