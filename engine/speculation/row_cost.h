// What one more row adds to a step, learned from the steps themselves: the `row_cost` of draft_length.h. Pure; the
// times come in as arguments.
//
// Model: near a given size a step takes a + b * rows. On a CPU backend b is large (a row is arithmetic), on a GPU it is
// nearly 0 until the step is full of rows. A line is fitted through the mean times of the sizes seen lately, sizes near
// the one in question counting most.
//
// Limits: report steps of decode rows and drafts only; rows of a prompt's chunk share its reading of the KV and are
// cheaper. The length of the contexts is not in the model: means fade, so it is followed. Until two sizes were seen a
// few times each, and again when those were long ago, the answer is what the constructor was given.
#pragma once

#include <array>
#include <cstdint>

namespace sluice::engine {

class RowCost {
 public:
  // initial >= 0.
  explicit RowCost(double initial) : initial_(initial) {}

  // A step of rows >= 1 took that long, in any unit.
  void Report(int rows, double seconds);

  // For a step of `rows` >= 1 without drafts: what another row costs, over what each of the rows costs. In a step of
  // one row that is the share of the step which a draft adds.
  double Share(int rows) const;

 private:
  static constexpr int kSizes = 40;  // two per octave
  struct Size {
    int seen = 0;  // at most kMemory
    double rows = 0, seconds = 0;
    int64_t last = 0;
  };

  double initial_;
  int64_t reports_ = 0;
  std::array<Size, kSizes> sizes_;
};

}  // namespace sluice::engine
