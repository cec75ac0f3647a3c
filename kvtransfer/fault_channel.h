// A SendChannel that misbehaves on purpose, around a real one: for tests and for fault drills on real processes. Every
// injected fault is counted, so that a test can prove that it happened.
//
// Faults are given by the number of the piece (counted over all pieces of the wrapper, from 0).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"

namespace sluice::kvtransfer {

struct FaultPlan {
  std::set<uint64_t> corrupt;  // one byte is changed after the checksum was taken
  // The bytes are never handed over, though Send says OK; nor is what comes after them, since a channel keeps its
  // order.
  std::set<uint64_t> lose;
  std::set<uint64_t> stall;      // as lose; what is lost after it is counted, too
  std::set<uint64_t> fail;       // Send fails
  std::set<uint64_t> delay;      // the bytes, and those of the pieces after it, are handed over kFaultDelay later
  std::set<uint64_t> duplicate;  // Send is called twice
};

// Shorter than what a receiver waits for the bytes of a piece that was announced (Receiver::Options::arrival_timeout).
inline constexpr absl::Duration kFaultDelay = absl::Milliseconds(900);

// "corrupt=3,lose=7,stall=9,fail=2,delay=5,duplicate=1"; each key may come several times. INVALID_ARGUMENT names the
// bad part.
absl::StatusOr<FaultPlan> ParseFaultPlan(std::string_view text);

// Shared by all channels that one plan wraps.
struct FaultState {
  FaultPlan plan;
  std::atomic<uint64_t> pieces{0};
  std::atomic<uint64_t> injected{0};
};

// What is held back goes out with the next call of Send or status (an endpoint asks several times a second).
std::unique_ptr<SendChannel> WithFaults(std::unique_ptr<SendChannel> channel, std::shared_ptr<FaultState> state);

}  // namespace sluice::kvtransfer
