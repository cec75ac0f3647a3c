// One level of a recursion that must not run out of stack.
#pragma once

#include "engine/text/jinja/budget.h"

namespace sluice::engine::jinja {

class Nested {
 public:
  // Counts a step, too. Throws if the recursion is too deep.
  Nested(int* depth, Budget& budget) : depth_(*depth) {
    budget.Step();
    if (depth_ >= budget.limits().depth) throw Error{ErrorKind::kLimit, "the chat template is nested too deeply"};
    ++depth_;
  }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() { --depth_; }

 private:
  int& depth_;
};

}  // namespace sluice::engine::jinja
