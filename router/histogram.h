// Counts of values in fixed buckets, as Prometheus' histograms have them. Pure; one array, a search of a few
// comparisons, no allocation: cheap enough for every token.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::router {

template <size_t kBounds>
class Histogram {
 public:
  using Bounds = std::array<double, kBounds>;

  // bounds: of the buckets, ascending; what is above the last one is in one more bucket.
  constexpr explicit Histogram(const Bounds& bounds) : bounds_(&bounds) {}

  void Observe(double value, uint64_t times = 1) {
    // A value that equals a bound belongs below it.
    counts_[size_t(std::lower_bound(bounds_->begin(), bounds_->end(), value) - bounds_->begin())] += times;
    sum_ += value * double(times);
  }

  const Bounds& bounds() const { return *bounds_; }
  const std::array<uint64_t, kBounds + 1>& counts() const { return counts_; }  // not cumulative
  double sum() const { return sum_; }
  uint64_t count() const {
    uint64_t all = 0;
    for (const uint64_t n : counts_) all += n;
    return all;
  }

 private:
  const Bounds* bounds_;
  std::array<uint64_t, kBounds + 1> counts_ = {};
  double sum_ = 0;
};

}  // namespace sluice::router
