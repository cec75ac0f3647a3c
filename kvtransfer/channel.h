// The bulk path of one pair of ranks: bytes of pieces, one way, from a prefill rank to a decode rank.
//
// Contract, the same for every implementation (channel_contract_test.cc):
//  - Sequences count up from 0 within an epoch. The receiver posts them in that order, with the exact number of
//    bytes; the sender fills and sends them in that order. Anything else is an error of the pair.
//  - At most `window` sequences are between PostReceive and Release; the receiver holds that limit.
//  - No copy that the medium does not need: the sender writes into Buffer(), the receiver reads from View().
//  - These are host memory, or, where device() says so, a device's (kernels/device_links.h): then the sender's bytes
//  are
//    there, as far as the sender's device is concerned, before it calls Send().
//  - Contents are not checked here (checksum.h), and no order holds between this path and the control link.
//  - Nothing blocks for ever: a lost peer makes status() an error, and calls after that fail at once.
//  - One thread a side. Arrivals are announced by the callback given at creation, on a thread of the channel's choice.
//
// Both ends are abandoned whole after an error; a new pair is made with the next epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_links.h"

namespace sluice::kvtransfer {

class SendChannel {
 public:
  virtual ~SendChannel() = default;

  // Both ends have met; nothing is sent before that. Where it takes long it does not hold up the making of a channel.
  virtual bool ready() const { return true; }

  // Where the bytes of the next sequence go. REQUIRES: the receiver posted it (its GRANT has been seen).
  // Valid until Send() or Close().
  virtual absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) = 0;

  // Hands the buffer to the receiver.
  virtual absl::Status Send(uint64_t sequence) = 0;

  // Of the buffer that was given last: null where it is host memory, else what can copy from and to it.
  virtual kernels::DeviceLinks* device() const { return nullptr; }

  virtual absl::Status status() const = 0;
  virtual void Close() = 0;
};

class ReceiveChannel {
 public:
  virtual ~ReceiveChannel() = default;

  virtual absl::Status PostReceive(uint64_t sequence, size_t bytes) = 0;

  // The arrived bytes of a sequence; NOT_FOUND while they have not arrived. Valid until Release(sequence).
  virtual absl::StatusOr<std::span<const std::byte>> View(uint64_t sequence) = 0;

  virtual void Release(uint64_t sequence) = 0;

  // Of all views: null where they are host memory.
  virtual kernels::DeviceLinks* device() const { return nullptr; }

  virtual absl::Status status() const = 0;
  virtual void Close() = 0;
};

using ArrivalCallback = std::function<void(uint64_t sequence)>;

// Sizes that both ends agree on in the Hello.
struct ChannelLimits {
  int window = 4;  // sequences in flight
  size_t max_piece_bytes = size_t{8} << 20;
};

}  // namespace sluice::kvtransfer
