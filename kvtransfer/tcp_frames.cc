#include "kvtransfer/tcp_frames.h"

#include <cstring>
#include <utility>

namespace sluice::kvtransfer {

std::span<std::byte> TcpFrames::wanted() {
  switch (state_) {
    case State::kHello:
      return std::span(head_).first(kTcpHelloBytes).subspan(got_);
    case State::kHeader:
      return std::span(head_).first(kTcpHeaderBytes).subspan(got_);
    case State::kBody:
      return body_.subspan(got_);
    case State::kOver:
      break;
  }
  return {};
}

absl::Status TcpFrames::Got(size_t bytes) {
  got_ += bytes;
  if (!wanted().empty()) return absl::OkStatus();
  got_ = 0;
  absl::Status taken;
  switch (state_) {
    case State::kHello:
      taken = TakeHello();
      break;
    case State::kHeader:
      taken = TakeHeader();
      break;
    case State::kBody:
      state_ = State::kHeader;
      owner_.whole(sequence_);
      break;
    case State::kOver:
      break;
  }
  if (!taken.ok()) state_ = State::kOver;
  return taken;
}

absl::Status TcpFrames::TakeHello() {
  unsigned char different = 0;  // in the same time wherever it differs
  for (size_t i = 0; i < kTcpTokenBytes; ++i) different |= uint8_t(head_[i]) ^ uint8_t(token_[i]);
  const int number = int(head_[kTcpTokenBytes]);
  if (different != 0 || number >= kTcpConnections || !owner_.greet(number)) {
    return absl::UnauthenticatedError("not this channel's token");
  }
  greeted_ = true;
  state_ = State::kHeader;
  return absl::OkStatus();
}

absl::Status TcpFrames::TakeHeader() {
  uint64_t bytes = 0;
  ReadFrameHeader(head_, &sequence_, &bytes);
  absl::StatusOr<std::span<std::byte>> body = owner_.begin(sequence_, bytes);
  if (!body.ok()) return body.status();
  body_ = *body;
  if (body_.empty()) {
    owner_.whole(sequence_);
  } else {
    state_ = State::kBody;
  }
  return absl::OkStatus();
}

}  // namespace sluice::kvtransfer
