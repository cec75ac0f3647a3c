#include "kvtransfer/nccl_ends.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kvtransfer/error_info.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/unix_rendezvous.h"

namespace sluice::kvtransfer {
namespace {

constexpr int kLookMillis = 20;
// What was sent a window ago has arrived, since the receiver has released it: only this end's GPU has yet to say so.
constexpr absl::Duration kSlotTimeout = absl::Seconds(2);

kernels::DevicePipeOptions PipeOptions(std::string id, bool sends) {
  return {.id = std::move(id),
          .sends = sends,
          .purpose = sends ? "KV to a decode worker" : "KV from a prefill worker",
          .meeting_timeout = absl::Seconds(5),  // less than a pair may be silent
          // The receiver posted first; the sender may be busy with other peers.
          .progress_timeout = sends ? absl::Seconds(5) : absl::Seconds(20)};
}

}  // namespace

NcclReceiveChannel::NcclReceiveChannel(NcclSlots slots, Fd listener, std::string token, ArrivalCallback on_arrival)
    : slots_(std::move(slots)),
      token_(std::move(token)),
      on_arrival_(std::move(on_arrival)),
      listener_(std::move(listener)) {
  for (int i = 0; i < slots_.limits().window; ++i) free_slots_.push_back(uint64_t(i));
}

NcclReceiveChannel::~NcclReceiveChannel() {
  Close();
}

absl::Status NcclReceiveChannel::Start(std::string id) {
  kernels::DevicePipeOptions options = PipeOptions(std::move(id), /*sends=*/false);
  options.meet = [this] { return AcceptPeer(); };
  options.peer = [this] { return LookAtPeer(); };
  options.on_done = [this](uint64_t sequence) { Arrive(sequence); };
  auto pipe = slots_.links().NewPipe(std::move(options));
  if (!pipe.ok()) return pipe.status();
  pipe_ = *std::move(pipe);
  return absl::OkStatus();
}

// The first connection that shows the token; others are closed.
absl::Status NcclReceiveChannel::AcceptPeer() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (!status_.ok()) return status_;
    }
    pollfd waiting = {listener_.get(), POLLIN, 0};
    if (poll(&waiting, 1, kLookMillis) <= 0) continue;
    Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer.ok()) continue;
    const absl::Time soon = absl::Now() + absl::Milliseconds(200);  // a silent stranger must not hold up the peer
    char token[kNcclTokenBytes];
    if (!ReceiveAll(peer.get(), token, sizeof token, soon).ok()) continue;
    if (std::memcmp(token, token_.data(), sizeof token) != 0) continue;
    if (!SendAll(peer.get(), &kNcclWelcome, 1, soon).ok()) continue;
    peer_ = std::move(peer);
    listener_.reset(-1);
    return absl::OkStatus();
  }
}

absl::Status NcclReceiveChannel::LookAtPeer() {
  absl::MutexLock lock(&mutex_);
  if (status_.ok() && PeerGone(peer_.get())) {
    status_ = PeerLost("the sending process has closed the channel or died");
  }
  return status_;
}

void NcclReceiveChannel::Arrive(uint64_t sequence) {
  {
    absl::MutexLock lock(&mutex_);
    arrived_ = sequence + 1;
  }
  on_arrival_(sequence);
}

absl::Status NcclReceiveChannel::PostReceive(uint64_t sequence, size_t bytes) {
  if (absl::Status s = status(); !s.ok()) return s;
  absl::MutexLock lock(&mutex_);
  if (sequence != posted_ || bytes > slots_.limits().max_piece_bytes || free_slots_.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat("receive %d of %d bytes can't be posted", sequence, bytes));
  }
  const uint64_t slot = free_slots_.back();
  free_slots_.pop_back();
  posts_[sequence] = {slot, bytes};
  ++posted_;
  pipe_->Queue(slots_.slot(slot, bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> NcclReceiveChannel::View(uint64_t sequence) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = posts_.find(sequence);
    if (it != posts_.end() && sequence < arrived_) {
      return std::span<const std::byte>(slots_.slot(it->second.slot, it->second.bytes));
    }
  }
  const absl::Status s = status();
  return s.ok() ? absl::NotFoundError("has not arrived") : s;
}

void NcclReceiveChannel::Release(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  const auto it = posts_.find(sequence);
  if (it == posts_.end()) return;
  free_slots_.push_back(it->second.slot);
  posts_.erase(it);
}

absl::Status NcclReceiveChannel::status() const {
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
  }
  return pipe_->status();
}

void NcclReceiveChannel::Close() {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = absl::UnavailableError("the channel was closed");
}

NcclSendChannel::NcclSendChannel(NcclSlots slots, Fd socket) : slots_(std::move(slots)), socket_(std::move(socket)) {}

absl::Status NcclSendChannel::Start(std::string id) {
  kernels::DevicePipeOptions options = PipeOptions(std::move(id), /*sends=*/true);
  options.peer = [this] { return LookAtPeer(); };
  options.on_done = [this](uint64_t sequence) {
    absl::MutexLock lock(&mutex_);
    done_ = sequence + 1;
  };
  auto pipe = slots_.links().NewPipe(std::move(options));
  if (!pipe.ok()) return pipe.status();
  pipe_ = *std::move(pipe);
  return absl::OkStatus();
}

absl::Status NcclSendChannel::LookAtPeer() const {
  return PeerGone(socket_.get()) ? PeerLost("the receiving process has closed the channel or died") : absl::OkStatus();
}

absl::StatusOr<std::span<std::byte>> NcclSendChannel::Buffer(uint64_t sequence, size_t bytes) {
  if (absl::Status s = status(); !s.ok()) return s;
  if (sequence != sent_ || bytes > slots_.limits().max_piece_bytes) {
    return absl::FailedPreconditionError(absl::StrFormat("%d bytes of %d were not granted", bytes, sequence));
  }
  const uint64_t window = uint64_t(slots_.limits().window);
  {
    absl::MutexLock lock(&mutex_);
    const auto free = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return sequence < done_ + window; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&free), kSlotTimeout)) {
      return absl::DeadlineExceededError(absl::StrFormat("piece %d waits for one that does not end", sequence));
    }
  }
  buffer_ = slots_.slot(sequence % window, bytes);
  return *buffer_;
}

absl::Status NcclSendChannel::Send(uint64_t sequence) {
  if (absl::Status s = status(); !s.ok()) return s;
  if (sequence != sent_ || !buffer_.has_value()) {
    return absl::FailedPreconditionError(absl::StrFormat("send of %d out of order", sequence));
  }
  ++sent_;
  pipe_->Queue(*std::exchange(buffer_, std::nullopt));
  return absl::OkStatus();
}

absl::Status NcclSendChannel::status() const {
  if (pipe_ == nullptr) return absl::UnavailableError("the channel was closed");
  if (absl::Status lost = LookAtPeer(); !lost.ok()) return lost;
  return pipe_->status();
}

// The pipe first: its thread uses the socket, and what it has under way uses the slots.
void NcclSendChannel::Close() {
  pipe_.reset();
  socket_.reset(-1);
}

}  // namespace sluice::kvtransfer
