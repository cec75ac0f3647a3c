// A Channel between hosts: a few TCP connections from the sender to a port that the receiver opened for this pair and
// epoch. A piece goes over one of them, in turns, so that no single connection's window or core is the limit.
//
// On the wire: a connection begins with the token of the endpoint and its own number; then frames, each a header
// (sequence and bytes, little-endian) and the bytes.
//
// Limits and safety:
//  - The sender gathers into memory of its own, and its thread writes; the receiver's thread reads straight into the
//    posted slot. The copies in between are the kernel's.
//  - A frame must be of a posted sequence that has not come yet, and of exactly the posted bytes: anything else fails
//    the channel. The receiver never allocates by what a frame says.
//  - A connection without the token within a second is closed and changes nothing, whatever else it does; so is one
//  more
//    than was asked for.
//  - Arrivals are announced in the order of their sequences, though pieces may overtake each other.
//  - The end of a connection tells at once that the peer is gone; a host that is cut off tells nothing, which the
//  link's
//    pings notice. Neither side encrypts: the token keeps strangers out, the checksum of a piece finds what was
//    changed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"

namespace sluice::kvtransfer {

struct TcpReceiver {
  std::unique_ptr<ReceiveChannel> channel;
  std::string endpoint;  // opaque bytes for ConnectTcpSender, carried in ReceiverHello.channel_endpoint
};

// Listens on a free port of `host` (a name or address; "0.0.0.0" for all). Returns at once; the sender may connect
// later.
absl::StatusOr<TcpReceiver> NewTcpReceiver(const std::string& host, const ChannelLimits& limits,
                                           ArrivalCallback on_arrival);

// `host`: where the receiver is reached. INVALID_ARGUMENT for a malformed endpoint, UNAVAILABLE when nobody answers,
// DEADLINE_EXCEEDED.
absl::StatusOr<std::unique_ptr<SendChannel>> ConnectTcpSender(const std::string& host, const std::string& endpoint,
                                                              absl::Duration timeout);

}  // namespace sluice::kvtransfer
