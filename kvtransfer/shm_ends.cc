#include "kvtransfer/shm_ends.h"

#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kvtransfer/error_info.h"

namespace sluice::kvtransfer {
namespace {

// How long the receiver's thread sleeps at most before it looks at the socket: the time to notice a dead peer that
// sends nothing. Arrivals wake it at once.
constexpr int kLookMillis = 20;

int Futex(std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* timeout) {
  return int(syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op, value, timeout, nullptr, 0));
}

}  // namespace

ShmReceiveChannel::ShmReceiveChannel(ShmSegment segment, UnixListener listener, ArrivalCallback on_arrival,
                                     std::unique_ptr<kernels::DeviceBuffer> ring, std::shared_ptr<DeviceRings> rings)
    : segment_(std::move(segment)),
      on_arrival_(std::move(on_arrival)),
      rings_(std::move(rings)),
      ring_(std::move(ring)),
      slots_(ring_ == nullptr ? segment_.slots() : ring_->bytes().data()),
      listener_(std::move(listener)) {
  for (int i = 0; i < segment_.limits().window; ++i) free_slots_.push_back(i);
}

void ShmReceiveChannel::Start() {
  thread_ = std::thread([this] { Run(); });
}

// The sender hears of the end, and its own end of the socket tells when it has stopped writing.
ShmReceiveChannel::~ShmReceiveChannel() {
  Close();
  if (thread_.joinable()) thread_.join();
  if (ring_ == nullptr) return;
  if (peer_.ok()) shutdown(peer_.get(), SHUT_WR);
  rings_->GiveBack(std::move(ring_), std::move(peer_));
}

absl::Status ShmReceiveChannel::PostReceive(uint64_t sequence, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (sequence != posted_ || bytes > segment_.limits().max_piece_bytes || free_slots_.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat("receive %d of %d bytes can't be posted", sequence, bytes));
  }
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  posts_[sequence] = {slot, bytes};
  ++posted_;
  segment_.header().slot_of[sequence % kMaxShmWindow].store(sequence << 8 | uint64_t(slot), std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> ShmReceiveChannel::View(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  const auto it = posts_.find(sequence);
  if (it == posts_.end() || sequence >= arrived_) {
    return status_.ok() ? absl::NotFoundError("has not arrived") : status_;
  }
  const size_t stride = ShmSegment::SlotStride(segment_.limits().max_piece_bytes);
  return std::span<const std::byte>(slots_ + size_t(it->second.slot) * stride, it->second.bytes);
}

void ShmReceiveChannel::Release(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  const auto it = posts_.find(sequence);
  if (it == posts_.end()) return;
  free_slots_.push_back(it->second.slot);
  posts_.erase(it);
}

absl::Status ShmReceiveChannel::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

void ShmReceiveChannel::Close() {
  Fail(absl::UnavailableError("the channel was closed"));
}

void ShmReceiveChannel::Fail(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = why;
  }
  Futex(&segment_.header().sent, FUTEX_WAKE, 1, nullptr);  // our own thread may be waiting on it
}

void ShmReceiveChannel::Run() {
  peer_ = listener_.Accept(segment_.fd(), [this] { return status().ok(); });
  while (status().ok()) {
    const uint32_t seen = segment_.header().sent.load(std::memory_order_acquire);
    if (!TakeArrivals(seen)) return;
    if (segment_.header().sent.load(std::memory_order_acquire) != seen) continue;
    const timespec look = {0, kLookMillis * 1000000L};
    Futex(&segment_.header().sent, FUTEX_WAIT, seen, &look);
    // Everything that was sent before the peer died counts: the socket is asked only when nothing new is there.
    if (segment_.header().sent.load(std::memory_order_acquire) == seen && PeerGone(peer_.get())) {
      return Fail(PeerLost("the sending process has closed the channel or died"));
    }
  }
}

bool ShmReceiveChannel::TakeArrivals(uint32_t seen) {
  uint64_t from = 0, to = 0;
  {
    absl::MutexLock lock(&mutex_);
    const uint32_t fresh = seen - uint32_t(arrived_);
    if (fresh > posted_ - arrived_) {
      if (status_.ok()) status_ = absl::InternalError("the peer sent more than was granted");
      return false;
    }
    from = arrived_;
    to = arrived_ += fresh;
  }
  for (uint64_t sequence = from; sequence < to; ++sequence) on_arrival_(sequence);
  return true;
}

ShmSendChannel::ShmSendChannel(ShmSegment segment, Fd socket, std::unique_ptr<kernels::DeviceBuffer> ring,
                               kernels::DeviceLinks* device)
    : segment_(std::move(segment)),
      socket_(std::move(socket)),
      ring_(std::move(ring)),
      device_(device),
      slots_(ring_ == nullptr ? segment_.slots() : ring_->bytes().data()) {}

absl::StatusOr<std::span<std::byte>> ShmSendChannel::Buffer(uint64_t sequence, size_t bytes) {
  if (absl::Status s = status(); !s.ok()) return s;
  const uint64_t posted = segment_.header().slot_of[sequence % kMaxShmWindow].load(std::memory_order_acquire);
  const uint64_t slot = posted & 0xff;
  if (sequence != sent_ || posted >> 8 != sequence || slot >= uint64_t(segment_.limits().window) ||
      bytes > segment_.limits().max_piece_bytes) {
    return absl::FailedPreconditionError(absl::StrFormat("%d bytes of %d were not granted", bytes, sequence));
  }
  return std::span<std::byte>(slots_ + slot * ShmSegment::SlotStride(segment_.limits().max_piece_bytes), bytes);
}

absl::Status ShmSendChannel::Send(uint64_t sequence) {
  if (absl::Status s = status(); !s.ok()) return s;
  if (sequence != sent_) return absl::FailedPreconditionError(absl::StrFormat("send of %d out of order", sequence));
  ++sent_;
  segment_.header().sent.store(uint32_t(sent_), std::memory_order_release);
  Futex(&segment_.header().sent, FUTEX_WAKE, 1, nullptr);
  return absl::OkStatus();
}

absl::Status ShmSendChannel::status() const {
  if (closed_) return absl::UnavailableError("the channel was closed");
  if (PeerGone(socket_.get())) {
    return PeerLost("the receiving process has closed the channel or died");
  }
  return absl::OkStatus();
}

// The mapping before the socket: its end says that nothing is written any more.
void ShmSendChannel::Close() {
  closed_ = true;
  ring_.reset();
  socket_.reset(-1);
}

}  // namespace sluice::kvtransfer
