// A Channel between two processes of one host: a memfd of `window` slots that the receiver makes and hands over through
// an abstract Unix socket. The sender gathers straight into a slot and the receiver scatters straight out of it, so a
// byte is copied twice in all.
//
// Limits and safety:
//  - The memfd is sealed against shrinking and growing, so a broken peer can't make our reads fault.
//  - No lock lies in shared memory; the sender publishes one counter (a futex word). The receiver trusts nothing it
//  reads
//    there beyond that counter, which it checks against what it posted.
//  - The socket stays open: its end tells at once that the peer is gone. A stray connection without the token is closed
//    and changes nothing.
//  - After an error both ends are abandoned whole.
//  - The receiver runs one thread, which waits for the futex and announces arrivals.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"

namespace sluice::kvtransfer {

struct ShmReceiver {
  std::unique_ptr<ReceiveChannel> channel;
  std::string endpoint;  // opaque bytes for ConnectShmSender, carried in ReceiverHello.channel_endpoint
};

// Returns at once; the sender may connect later.
absl::StatusOr<ShmReceiver> NewShmReceiver(const ChannelLimits& limits, ArrivalCallback on_arrival);

// INVALID_ARGUMENT for a malformed endpoint, UNAVAILABLE when nobody answers, DEADLINE_EXCEEDED.
absl::StatusOr<std::unique_ptr<SendChannel>> ConnectShmSender(const std::string& endpoint, absl::Duration timeout);

}  // namespace sluice::kvtransfer
