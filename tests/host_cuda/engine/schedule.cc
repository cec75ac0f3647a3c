#include "tests/host_cuda/engine/schedule.h"

#include <algorithm>
#include <bit>

namespace host_cuda {

void Schedule::Start(Order order, Random random, size_t threads) {
  order_ = order;
  random_ = random;
  if (ring_.size() < threads) ring_.resize(std::bit_ceil(threads));
  mask_ = ring_.size() - 1;
  head_ = count_ = 0;
}

void Schedule::Arrange(Thread** threads, size_t n) {
  if (order_ == Order::kDescending) std::reverse(threads, threads + n);
  if (order_ == Order::kRandom) random_.Shuffle(threads, n);
}

void Schedule::ReleaseBlock(Thread** threads, size_t n) {
  Arrange(threads, n);
  for (size_t i = 0; i < n; ++i) Push(threads[i]);
}

void Schedule::ReleaseWarp(Thread** threads, size_t n) {
  Arrange(threads, n);
  if (order_ == Order::kRandom && (random_.Next() & 3) == 0) {
    for (size_t i = 0; i < n; ++i) Push(threads[i]);
    return;
  }
  for (size_t i = n; i > 0; --i) PushFront(threads[i - 1]);
}

bool Schedule::Ready(const Thread* thread) const {
  for (size_t i = 0; i < count_; ++i) {
    if (ring_[(head_ + i) & mask_] == thread) return true;
  }
  return false;
}

}  // namespace host_cuda
