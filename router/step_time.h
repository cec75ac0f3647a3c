// How long a worker's step takes for so many rows: base + per_row * rows, learned from its reports. Pure.
//
// A least-squares line through what was seen, in which the past fades (factor 0.98 a report). It rises with every row,
// by a share of the mean at least: what was seen is noisy and smoothed, and workers of which one seems a little faster
// must not all be passed over for it. The share is 1 / (rows seen + 4): a fifth for one row, a hundredth for a hundred.
#pragma once

#include <algorithm>

namespace sluice::router {

class StepTime {
 public:
  // What the worker measured at its start; 0: unknown.
  explicit StepTime(double first_ms = 0) {
    if (first_ms > 0) Add(1, first_ms);
  }

  void Add(double rows, double ms) {
    if (rows <= 0 || ms <= 0) return;
    constexpr double kFade = 0.98;
    n_ = kFade * n_ + 1;
    x_ = kFade * x_ + rows;
    y_ = kFade * y_ + ms;
    xx_ = kFade * xx_ + rows * rows;
    xy_ = kFade * xy_ + rows * ms;
  }

  bool known() const { return n_ > 0; }

  // REQUIRES: known()
  double At(double rows) const {
    const double mean_x = x_ / n_;
    const double mean_y = y_ / n_;
    const double variance = xx_ / n_ - mean_x * mean_x;
    const double seen = variance < 0.01 ? 0 : (xy_ / n_ - mean_x * mean_y) / variance;
    const double slope = std::max(seen, mean_y / (mean_x + 4));
    return std::max(0.1 * mean_y, mean_y + slope * (rows - mean_x));
  }

 private:
  double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

}  // namespace sluice::router
