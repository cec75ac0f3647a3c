#include "engine/speculation/row_cost.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>

namespace sluice::engine {
namespace {

constexpr int kMemory = 20;        // reports that a mean remembers
constexpr int kEnough = 3;         // reports before a size counts
constexpr int64_t kForget = 2000;  // reports of other sizes after which one does not count any more
constexpr double kLongest = 2.0;   // times the mean: what is longer was an interruption

double Octaves(double rows) {
  return 2.0 * std::log2(rows);
}

}  // namespace

void RowCost::Report(int rows, double seconds) {
  CHECK_GE(rows, 1);
  Size& size = sizes_[size_t(std::min(int(Octaves(rows)), kSizes - 1))];
  if (++reports_ - size.last > kForget) size.seen = 0;
  if (size.seen >= kEnough) seconds = std::min(seconds, kLongest * size.seconds);
  size.seen = std::min(size.seen + 1, kMemory);
  size.rows += (rows - size.rows) / size.seen;
  size.seconds += (seconds - size.seconds) / size.seen;
  size.last = reports_;
}

double RowCost::Share(int rows) const {
  CHECK_GE(rows, 1);
  double weights = 0, x = 0, y = 0;
  const auto weight = [&](const Size& s) {
    if (s.seen < kEnough || reports_ - s.last > kForget) return 0.0;
    const double distance = Octaves(s.rows) - Octaves(rows);
    return s.seen / (1.0 + distance * distance);
  };
  for (const Size& s : sizes_) weights += weight(s), x += weight(s) * s.rows, y += weight(s) * s.seconds;
  if (weights == 0) return initial_;
  x /= weights, y /= weights;
  double xx = 0, xy = 0;
  for (const Size& s : sizes_) {
    xx += weight(s) * (s.rows - x) * (s.rows - x);
    xy += weight(s) * (s.rows - x) * (s.seconds - y);
  }
  if (xx < 1e-6) return initial_;
  const double slope = std::max(xy / xx, 0.0);
  const double step = y + slope * (rows - x);
  return step > 0 ? slope * rows / step : initial_;
}

}  // namespace sluice::engine
