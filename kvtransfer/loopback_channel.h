// A Channel inside one process, for tests and for a prefill and a decode role that share a process.
// Limits: both ends may be used from different threads; arrivals are announced on the sender's thread.
#pragma once

#include <memory>

#include "kvtransfer/channel.h"

namespace sluice::kvtransfer {

struct LoopbackPair {
  std::unique_ptr<SendChannel> sender;
  std::unique_ptr<ReceiveChannel> receiver;
};

LoopbackPair NewLoopbackChannel(const ChannelLimits& limits, ArrivalCallback on_arrival);

}  // namespace sluice::kvtransfer
