#include "kvtransfer/shm_channel.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kvtransfer/error_info.h"
#include "kvtransfer/shm_segment.h"

namespace sluice::kvtransfer {
namespace {

constexpr size_t kNameBytes = 16, kTokenBytes = 32;
// How long the receiver's thread sleeps at most before it looks at the socket: the time to notice a dead peer that
// sends nothing. Arrivals wake it at once.
constexpr int kLookMillis = 20;

absl::Status Errno(const char* what) {
  return absl::ErrnoToStatus(errno, what);
}

int Futex(std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* timeout) {
  return int(syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op, value, timeout, nullptr, 0));
}

// An abstract socket address: no file, gone with its last descriptor.
socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  std::memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  const std::string full = absl::StrCat("sluice-kv-", absl::BytesToHexString(name));
  std::memcpy(address->sun_path + 1, full.data(), full.size());
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + full.size());
}

absl::Status SendFd(int socket, int fd) {
  char byte = 1;
  iovec io = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &io, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof(control);
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &fd, sizeof(int));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? absl::OkStatus() : Errno("handing over shared memory");
}

absl::StatusOr<Fd> ReceiveFd(int socket) {
  char byte = 0;
  iovec io = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &io, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof(control);
  const ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return Errno("receiving shared memory");
  const cmsghdr* c = CMSG_FIRSTHDR(&message);
  if (n != 1 || c == nullptr || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int))) {
    return absl::UnavailableError("the peer closed the connection instead of handing over shared memory");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(c), sizeof(int));
  return Fd(fd);
}

// True when the peer's end of the socket is closed.
bool PeerGone(int socket) {
  char byte;
  const ssize_t n = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Lock order: mutex_ is a leaf; the arrival callback is called without it.
class ShmReceiveChannel : public ReceiveChannel {
 public:
  ShmReceiveChannel(ShmSegment segment, Fd listener, std::string token, ArrivalCallback on_arrival)
      : segment_(std::move(segment)),
        listener_(std::move(listener)),
        token_(std::move(token)),
        on_arrival_(std::move(on_arrival)) {
    for (int i = 0; i < segment_.limits().window; ++i) free_slots_.push_back(i);
  }

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }

  ~ShmReceiveChannel() override {
    Close();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status PostReceive(uint64_t sequence, size_t bytes) override {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    if (sequence != posted_ || bytes > segment_.limits().max_piece_bytes || free_slots_.empty()) {
      return absl::FailedPreconditionError(absl::StrFormat("receive %d of %d bytes can't be posted", sequence, bytes));
    }
    const int slot = free_slots_.back();
    free_slots_.pop_back();
    posts_[sequence] = {slot, bytes};
    ++posted_;
    segment_.header().slot_of[sequence % kMaxShmWindow].store(sequence << 8 | uint64_t(slot),
                                                              std::memory_order_release);
    return absl::OkStatus();
  }

  absl::StatusOr<std::span<const std::byte>> View(uint64_t sequence) override {
    absl::MutexLock lock(&mutex_);
    const auto it = posts_.find(sequence);
    if (it == posts_.end() || sequence >= arrived_) {
      return status_.ok() ? absl::NotFoundError("has not arrived") : status_;
    }
    return std::span<const std::byte>(segment_.slot(it->second.slot).first(it->second.bytes));
  }

  void Release(uint64_t sequence) override {
    absl::MutexLock lock(&mutex_);
    const auto it = posts_.find(sequence);
    if (it == posts_.end()) return;
    free_slots_.push_back(it->second.slot);
    posts_.erase(it);
  }

  absl::Status status() const override {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  void Close() override { Fail(absl::UnavailableError("the channel was closed")); }

 private:
  struct Post {
    int slot = 0;
    size_t bytes = 0;
  };

  void Fail(const absl::Status& why) {
    {
      absl::MutexLock lock(&mutex_);
      if (status_.ok()) status_ = why;
    }
    Futex(&segment_.header().sent, FUTEX_WAKE, 1, nullptr);  // our own thread may be waiting on it
  }

  // Waits for the peer, then for what it sends, until the channel fails.
  void Run() {
    Fd peer = AcceptPeer();
    while (status().ok()) {
      const uint32_t seen = segment_.header().sent.load(std::memory_order_acquire);
      if (!TakeArrivals(seen)) return;
      if (segment_.header().sent.load(std::memory_order_acquire) != seen) continue;
      const timespec look = {0, kLookMillis * 1000000L};
      Futex(&segment_.header().sent, FUTEX_WAIT, seen, &look);
      // Everything that was sent before the peer died counts: the socket is asked only when nothing new is there.
      if (segment_.header().sent.load(std::memory_order_acquire) == seen && PeerGone(peer.get())) {
        return Fail(PeerLost("the sending process has closed the channel or died"));
      }
    }
  }

  bool TakeArrivals(uint32_t seen) {
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

  // The first connection that shows the token gets the memory; others are closed.
  Fd AcceptPeer() {
    while (status().ok()) {
      pollfd waiting = {listener_.get(), POLLIN, 0};
      if (poll(&waiting, 1, kLookMillis) <= 0) continue;
      Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.ok()) continue;
      const timeval limit = {1, 0};
      setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      char token[kTokenBytes];
      const ssize_t n = recv(peer.get(), token, sizeof(token), MSG_WAITALL);
      if (n != ssize_t(kTokenBytes) || std::memcmp(token, token_.data(), kTokenBytes) != 0) continue;
      if (SendFd(peer.get(), segment_.fd()).ok()) {
        listener_.reset(-1);
        return peer;
      }
    }
    return Fd();
  }

  ShmSegment segment_;
  Fd listener_;  // used by the thread only
  const std::string token_;
  const ArrivalCallback on_arrival_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Post> posts_ ABSL_GUARDED_BY(mutex_);  // posted, not released
  std::vector<int> free_slots_ ABSL_GUARDED_BY(mutex_);
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ShmSendChannel : public SendChannel {
 public:
  ShmSendChannel(ShmSegment segment, Fd socket) : segment_(std::move(segment)), socket_(std::move(socket)) {}

  absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) override {
    if (absl::Status s = status(); !s.ok()) return s;
    const uint64_t posted = segment_.header().slot_of[sequence % kMaxShmWindow].load(std::memory_order_acquire);
    const uint64_t slot = posted & 0xff;
    if (sequence != sent_ || posted >> 8 != sequence || slot >= uint64_t(segment_.limits().window) ||
        bytes > segment_.limits().max_piece_bytes) {
      return absl::FailedPreconditionError(absl::StrFormat("%d bytes of %d were not granted", bytes, sequence));
    }
    return segment_.slot(int(slot)).first(bytes);
  }

  absl::Status Send(uint64_t sequence) override {
    if (absl::Status s = status(); !s.ok()) return s;
    if (sequence != sent_) return absl::FailedPreconditionError(absl::StrFormat("send of %d out of order", sequence));
    ++sent_;
    segment_.header().sent.store(uint32_t(sent_), std::memory_order_release);
    Futex(&segment_.header().sent, FUTEX_WAKE, 1, nullptr);
    return absl::OkStatus();
  }

  absl::Status status() const override {
    if (closed_) return absl::UnavailableError("the channel was closed");
    if (PeerGone(socket_.get())) {
      return PeerLost("the receiving process has closed the channel or died");
    }
    return absl::OkStatus();
  }

  void Close() override {
    closed_ = true;
    socket_.reset(-1);
  }

 private:
  ShmSegment segment_;
  Fd socket_;
  uint64_t sent_ = 0;
  bool closed_ = false;
};

}  // namespace

absl::StatusOr<ShmReceiver> NewShmReceiver(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  absl::StatusOr<ShmSegment> segment = ShmSegment::Create(limits);
  if (!segment.ok()) return segment.status();
  std::string secret(kNameBytes + kTokenBytes, '\0');
  if (getrandom(secret.data(), secret.size(), 0) != ssize_t(secret.size())) return Errno("getrandom");
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.ok()) return Errno("socket");
  sockaddr_un address;
  const socklen_t length = AbstractAddress(secret.substr(0, kNameBytes), &address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return Errno("bind");
  if (listen(listener.get(), 4) != 0) return Errno("listen");
  auto channel = std::make_unique<ShmReceiveChannel>(std::move(*segment), std::move(listener),
                                                     secret.substr(kNameBytes), std::move(on_arrival));
  channel->Start();
  return ShmReceiver{std::move(channel), std::move(secret)};
}

absl::StatusOr<std::unique_ptr<SendChannel>> ConnectShmSender(const std::string& endpoint, absl::Duration timeout) {
  if (endpoint.size() != kNameBytes + kTokenBytes) {
    return absl::InvalidArgumentError("the endpoint of a shared memory channel has another length");
  }
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.ok()) return Errno("socket");
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  sockaddr_un address;
  const socklen_t length = AbstractAddress(endpoint.substr(0, kNameBytes), &address);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return absl::UnavailableError(absl::StrCat("no receiver at the shared memory endpoint: ", std::strerror(errno)));
  }
  const std::string token = endpoint.substr(kNameBytes);
  if (send(socket.get(), token.data(), token.size(), MSG_NOSIGNAL) != ssize_t(token.size())) return Errno("send");
  absl::StatusOr<Fd> fd = ReceiveFd(socket.get());
  if (!fd.ok()) {
    if (errno == EAGAIN) return absl::DeadlineExceededError("the receiver did not hand over its memory in time");
    return fd.status();
  }
  absl::StatusOr<ShmSegment> segment = ShmSegment::Map(std::move(*fd));
  if (!segment.ok()) return segment.status();
  return std::make_unique<ShmSendChannel>(std::move(*segment), std::move(socket));
}

}  // namespace sluice::kvtransfer
