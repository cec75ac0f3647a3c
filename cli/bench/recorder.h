// The records of a run while it runs. Any thread may call; the senders do as tokens come, the schedule as it sends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "cli/bench/record.h"

namespace sluice::cli::bench {

using Clock = std::chrono::steady_clock;

// What a server says at the end; -1: nothing.
struct Counted {
  int prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;
};

struct Progress {
  int sent = 0, running = 0, done = 0, failed = 0;
  long tokens = 0;
};

class Recorder {
 public:
  explicit Recorder(std::vector<Record> planned);

  void Begin(Clock::time_point now) { begin_ = now; }  // before anything else
  Clock::time_point begin() const { return begin_; }
  double At(Clock::time_point now) const { return std::chrono::duration<double>(now - begin_).count(); }

  // `scheduled_now`: the schedule had no time for it, as where requests wait for one another; then it is now.
  void Sent(int index, Clock::time_point now, bool scheduled_now);
  void Tokens(int index, Clock::time_point now, int count);
  // An answer without a token that could be seen has its first one at its end.
  void Ended(int index, Clock::time_point now, Outcome outcome, std::string error, const Counted& counted);

  // Waits until fewer than `most` run, `until` comes, or Stop was called: then false.
  bool WaitForRoom(int most);
  bool WaitUntil(Clock::time_point until);
  // Until nothing runs; false: it did not come to that before `until`.
  bool WaitForEnd(Clock::time_point until);
  void Stop();
  bool stopped();

  Progress progress();
  std::vector<Record> Take();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Record> records_;
  Clock::time_point begin_;
  Progress progress_;
  bool stopped_ = false;
};

}  // namespace sluice::cli::bench
