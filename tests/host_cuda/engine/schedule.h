// Which CUDA thread runs next. Real warps promise no order, so each order here is one that a kernel must survive:
//
// ascending, descending: greedy: a thread runs until it must wait, a warp until it waits for the block. This is the
// worst case for a missing barrier, as one warp is as far ahead of the others as it can be.
//
// random, from a seed: lanes drift apart in a warp, warps in a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/host_cuda/engine/settings.h"

namespace host_cuda {

struct Thread;

// xorshift64*: small, fast, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed = 1) : state_(seed * 0x9E3779B97F4A7C15ull + 0x632BE59BD9B4E019ull) {
    if (state_ == 0) state_ = 1;
  }
  uint32_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Dull) >> 32);
  }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>((uint64_t{Next()} * n) >> 32); }
  template <class T>
  void Shuffle(T* items, size_t n);

 private:
  uint64_t state_;
};

// Two places a number: 16 bits are enough for the threads of a block.
template <class T>
void Random::Shuffle(T* items, size_t n) {
  for (size_t i = n; i > 1; --i) {
    const uint32_t bits = Next();
    std::swap(items[i - 1], items[(bits & 0xffff) * i >> 16]);
    if (--i > 1) std::swap(items[i - 1], items[(bits >> 16) * i >> 16]);
  }
}

class Schedule {
 public:
  void Start(Order order, Random random, size_t threads);

  // In ascending order of their index (any, for the random order); takes them in its own.
  void ReleaseBlock(Thread** threads, size_t n);
  void ReleaseWarp(Thread** threads, size_t n);
  void Back(Thread* thread) { Push(thread); }

  // nullptr: nobody is ready.
  Thread* Next() {
    if (count_ == 0) return nullptr;
    Thread* const thread = ring_[head_];
    head_ = (head_ + 1) & mask_;
    --count_;
    return thread;
  }

  // Whether it is among those that Next() will give.
  bool Ready(const Thread* thread) const;

  // Whether the lane that completes a warp operation lets the others go first.
  bool LastLaneSteps() { return order_ == Order::kRandom && (random_.Next() & 1) != 0; }

 private:
  void Arrange(Thread** threads, size_t n);
  void Push(Thread* thread) { ring_[(head_ + count_++) & mask_] = thread; }
  void PushFront(Thread* thread) {
    head_ = (head_ - 1) & mask_;
    ring_[head_] = thread;
    ++count_;
  }

  Order order_ = Order::kRandom;
  Random random_;
  std::vector<Thread*> ring_;  // a power of two
  size_t mask_ = 0, head_ = 0, count_ = 0;
};

}  // namespace host_cuda
