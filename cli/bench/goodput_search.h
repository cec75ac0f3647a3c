// The highest rate at which at least a share of the offered requests is good: doubling or halving until it lies
// between a rate that keeps it and one that does not, then bisection. Pure: whoever measures asks for the next rate and
// says what came out.
#pragma once

#include <optional>
#include <vector>

#include "cli/bench/summary.h"

namespace sluice::cli::bench {

struct GoodputOptions {
  double first_rate = 1;
  double share = 0.9;
  double precision = 0.05;  // it ends when the two rates differ by so much of the lower one
  int most_tries = 24;
};

struct RateTry {
  double rate = 0;
  int good = 0, offered = 0;
  Interval interval;
  bool kept = false;
};

class GoodputSearch {
 public:
  explicit GoodputSearch(const GoodputOptions& options) : options_(options) {}

  // nullopt: it is over.
  std::optional<double> Next() const;
  void Took(double rate, int good, int offered);

  const std::vector<RateTry>& tries() const { return tries_; }
  // The best rate that kept the share; null: none did.
  const RateTry* best() const;
  // The lowest rate that did not; null: all did.
  const RateTry* worst() const;

 private:
  GoodputOptions options_;
  std::vector<RateTry> tries_;
};

}  // namespace sluice::cli::bench
