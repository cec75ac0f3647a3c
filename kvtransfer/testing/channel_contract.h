// What kvtransfer/channel.h promises, as tests for every channel (channel_contract.cc); instantiated where there is
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "kvtransfer/channel.h"

namespace sluice::kvtransfer {

// Collects arrivals from the channel's thread.
class Arrivals {
 public:
  ArrivalCallback callback() {
    return [this](uint64_t sequence) {
      absl::MutexLock lock(&mutex_);
      seen_.push_back(sequence);
    };
  }
  std::vector<uint64_t> WaitFor(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return seen_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20));
    return seen_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<uint64_t> seen_;
};

struct Ends {
  std::unique_ptr<SendChannel> sender;
  std::unique_ptr<ReceiveChannel> receiver;
};

struct Medium {
  const char* name;
  std::function<Ends(const ChannelLimits&, ArrivalCallback)> make;
  bool sender_sees_posts = true;  // else only the grant tells it, and the receiver refuses what was not posted
};

class ChannelContract : public testing::TestWithParam<Medium> {
 protected:
  Ends Make(const ChannelLimits& limits = {4, 1000}) { return GetParam().make(limits, arrivals_.callback()); }
  Arrivals arrivals_;
};

// Random bytes of the seed into the sender's buffer, and whether they are what the receiver shows; wherever it lies.
void Fill(const SendChannel& sender, std::span<std::byte> buffer, uint64_t seed);
void ExpectFilled(const ReceiveChannel& receiver, std::span<const std::byte> view, uint64_t seed);

}  // namespace sluice::kvtransfer
