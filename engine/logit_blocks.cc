#include "engine/logit_blocks.h"

#include <functional>
#include <limits>

namespace sluice::engine {

float LogitBlocks::LowerBound(int count) const {
  if (size_t(count) > maxima_.size()) return -std::numeric_limits<float>::infinity();
  std::vector<float> maxima(maxima_.begin(), maxima_.end());
  std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(), std::greater<>());
  return maxima[size_t(count) - 1];
}

int32_t LogitBlocks::First(float max) const {
  const size_t block = size_t(std::find(maxima_.begin(), maxima_.end(), max) - maxima_.begin());
  const auto from = logits_.begin() + std::ptrdiff_t(block * kernels::kLogitBlock);
  return int32_t(std::find(from, logits_.end(), max) - logits_.begin());
}

}  // namespace sluice::engine
