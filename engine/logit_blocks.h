// The largest logit of every kLogitBlock consecutive ones of a row: enough to find the best few without looking at the
// others. A backend may bring them along (kernels::HeadParams::maxima).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sluice::engine {

class LogitBlocks {
 public:
  // logits is [vocab], maxima [kernels::NumLogitBlocks(vocab)]; NaN counts for nothing in it. Both must outlive this.
  LogitBlocks(std::span<const float> logits, std::span<const float> maxima) : logits_(logits), maxima_(maxima) {}

  std::span<const float> logits() const { return logits_; }
  int size() const { return int(logits_.size()); }

  // fn(id, logit) for all logits >= least, ids ascending; no NaN.
  template <class Fn>
  void AtLeast(float least, Fn fn) const {
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (!(maxima_[b] >= least)) continue;
      const size_t end = std::min(logits_.size(), (b + 1) * kernels::kLogitBlock);
      for (size_t i = b * kernels::kLogitBlock; i < end; ++i) {
        if (logits_[i] >= least) fn(int32_t(i), logits_[i]);
      }
    }
  }

  // At least `count` logits are no smaller; -infinity where the blocks cannot tell.
  float LowerBound(int count) const;

  // The lowest id of a logit. REQUIRES: `max` is the largest.
  int32_t First(float max) const;

 private:
  std::span<const float> logits_, maxima_;
};

}  // namespace sluice::engine
