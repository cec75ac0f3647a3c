// What one rendering may use, so that no template and no conversation can hang the process or eat its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/text/jinja/error.h"

namespace sluice::engine::jinja {

struct Limits {
  int64_t steps = 20'000'000;             // nodes looked at; 32 bytes copied count as one, too
  size_t live_bytes = size_t{256} << 20;  // of values at one time
  size_t output_bytes = size_t{64} << 20;
  int depth = 1000;   // of nested evaluations
  int nesting = 200;  // of lists and mappings in each other
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  void Step(int64_t steps = 1) {
    steps_left_ -= steps;
    if (steps_left_ < 0) throw Error{ErrorKind::kLimit, "the chat template takes too many steps"};
  }
  void StepBytes(size_t bytes) { Step(1 + static_cast<int64_t>(bytes / 32)); }

  void Take(size_t bytes) {
    if (live_bytes_ + bytes > limits_.live_bytes) {
      throw Error{ErrorKind::kLimit, "the chat template needs too much memory"};
    }
    live_bytes_ += bytes;
  }
  void Give(size_t bytes) { live_bytes_ -= bytes; }

 private:
  Limits limits_;
  int64_t steps_left_;
  size_t live_bytes_ = 0;
};

// Bytes of a budget for as long as this lives. Without a budget: constants of a parsed template.
class Charge {
 public:
  Charge(Budget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) budget_->Take(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() {
    if (budget_ != nullptr) budget_->Give(bytes_);
  }

 private:
  Budget* budget_;
  size_t bytes_;
};

}  // namespace sluice::engine::jinja
