// What a connection of the TCP channel says, taken apart: the hello with the token, then frames of a header and bytes.
// Pure: the owner reads from the socket straight to where wanted() points and reports how much came, in whatever steps.
//
// Promises: bytes of a frame go only to memory that `begin` gave for exactly its sequence and size; nothing is allocated
// by what a peer says; after an error wanted() is empty for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/tcp_wire.h"

namespace sluice::kvtransfer {

class TcpFrames {
 public:
  struct Owner {
    // A hello with the right token came, of connection `number`. False: there is one already.
    std::function<bool(int number)> greet;
    // A frame begins: where its bytes go, exactly `bytes` of them; an error where it was not granted.
    std::function<absl::StatusOr<std::span<std::byte>>(uint64_t sequence, uint64_t bytes)> begin;
    // The frame is whole.
    std::function<void(uint64_t sequence)> whole;
  };

  TcpFrames(std::string token, Owner owner) : token_(std::move(token)), owner_(std::move(owner)) {}

  // Where the next bytes go. Empty: nothing is to be read any more.
  std::span<std::byte> wanted();

  // So many came there. UNAUTHENTICATED for a wrong hello (close the connection), `begin`'s error otherwise (the channel
  // has failed).
  absl::Status Got(size_t bytes);

  bool greeted() const { return greeted_; }  // the hello came and was right

 private:
  enum class State : uint8_t { kHello, kHeader, kBody, kOver };

  absl::Status TakeHello();
  absl::Status TakeHeader();

  const std::string token_;
  const Owner owner_;
  State state_ = State::kHello;
  bool greeted_ = false;
  std::byte head_[kTcpHelloBytes];  // what has come of a hello or header
  size_t got_ = 0;                  // of it, or of the body
  uint64_t sequence_ = 0;
  std::span<std::byte> body_;
};

}  // namespace sluice::kvtransfer
