// Guesses the tokens that follow, so that one step can check several of them. A drafter never decides a token: what it
// guesses right saves steps, what it guesses wrong costs rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::engine {

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Worth asking when there are `position` tokens. While it is, steps of the sequence do not overlap: a guess needs all
  // tokens before it.
  virtual bool active(int position) const = 0;

  // At most `limit` tokens that may follow `tokens` (prompt + answer), which only ever grow from call to call.
  virtual std::vector<int32_t> Propose(std::span<const int32_t> tokens, int limit) = 0;

  // Of the `drafted` guesses after `position` tokens the first `accepted` were right.
  virtual void Report(int position, int drafted, int accepted) = 0;

  // What one more row adds to the steps now, as a share of a step. Decides how many guesses pay, never which.
  virtual void set_row_cost(double row_cost) = 0;
};

}  // namespace sluice::engine
