#include "kvtransfer/tcp_receive_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kvtransfer/error_info.h"

namespace sluice::kvtransfer {
namespace {

constexpr absl::Duration kHelloTimeout = absl::Seconds(1);
constexpr size_t kMostStrangers = 32;  // connections that have not shown the token

}  // namespace

TcpReceiveChannel::TcpReceiveChannel(const ChannelLimits& limits, Fd listener, std::string token,
                                     ArrivalCallback on_arrival)
    : limits_(limits), token_(std::move(token)), on_arrival_(std::move(on_arrival)), listener_(std::move(listener)) {
  for (int i = 0; i < limits.window; ++i) {
    slots_.emplace_back(new std::byte[std::max<size_t>(limits.max_piece_bytes, 1)]);
    free_slots_.push_back(i);
  }
  thread_ = std::thread([this] { Run(); });
}

TcpReceiveChannel::~TcpReceiveChannel() {
  Close();
  thread_.join();
}

absl::Status TcpReceiveChannel::PostReceive(uint64_t sequence, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (sequence != posted_ || bytes > limits_.max_piece_bytes || free_slots_.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat("receive %d of %d bytes can't be posted", sequence, bytes));
  }
  posts_[sequence] = {.slot = free_slots_.back(), .bytes = bytes};
  free_slots_.pop_back();
  ++posted_;
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> TcpReceiveChannel::View(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  const auto it = posts_.find(sequence);
  if (it == posts_.end() || sequence >= announced_) {
    return status_.ok() ? absl::NotFoundError("has not arrived") : status_;
  }
  return std::span<const std::byte>(slots_[size_t(it->second.slot)].get(), it->second.bytes);
}

void TcpReceiveChannel::Release(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  const auto it = posts_.find(sequence);
  if (it == posts_.end()) return;
  free_slots_.push_back(it->second.slot);
  posts_.erase(it);
}

absl::Status TcpReceiveChannel::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

void TcpReceiveChannel::Close() {
  Fail(absl::UnavailableError("the channel was closed"));
}

void TcpReceiveChannel::Fail(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = why;
  }
  wakeup_.Signal();
}

void TcpReceiveChannel::Run() {
  while (status().ok()) {
    std::vector<pollfd> fds = {{wakeup_.fd(), POLLIN, 0}};
    fds.push_back({listener_.get(), POLLIN, 0});  // ignored once it is closed
    absl::Time until = absl::InfiniteFuture();
    for (const auto& c : connections_) {
      fds.push_back({c->socket.get(), POLLIN, 0});
      if (!c->frames.greeted()) until = std::min(until, c->hello_until);
    }
    const absl::Duration left = until - absl::Now();
    const int timeout =
        until == absl::InfiniteFuture() ? -1 : int(std::max<int64_t>(0, left / absl::Milliseconds(1))) + 1;
    if (poll(fds.data(), nfds_t(fds.size()), timeout) < 0 && errno != EINTR) {
      return Fail(absl::ErrnoToStatus(errno, "poll"));
    }
    if (fds[0].revents != 0) wakeup_.Clear();
    const size_t polled = connections_.size();
    for (size_t i = 0; i < polled && status().ok(); ++i) {
      if (fds[i + 2].revents != 0) Read(*connections_[i]);
    }
    if (fds[1].revents != 0) Accept();
    std::erase_if(connections_, [now = absl::Now()](const auto& c) {
      return c->over || (!c->frames.greeted() && now >= c->hello_until);
    });
  }
  connections_.clear();  // so that the sender hears of it now
  listener_.reset(-1);
}

void TcpReceiveChannel::Accept() {
  for (;;) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.ok()) return;
    if (connections_.size() >= kMostStrangers + kTcpConnections) continue;  // closed again
    const int fd = socket.get();
    connections_.push_back(std::make_unique<Connection>(
        Connection{std::move(socket), TcpFrames(token_, MakeOwner(fd)), absl::Now() + kHelloTimeout}));
  }
}

void TcpReceiveChannel::Read(Connection& c) {
  while (!c.over) {
    const std::span<std::byte> to = c.frames.wanted();
    const ssize_t n = recv(c.socket.get(), to.data(), to.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      c.over = true;
      if (c.frames.greeted()) Fail(PeerLost("the sending process has closed the channel or died"));
      return;
    }
    const absl::Status taken = c.frames.Got(size_t(n));
    c.over = !taken.ok();
    if (!taken.ok() && c.frames.greeted()) Fail(taken);
  }
}

TcpFrames::Owner TcpReceiveChannel::MakeOwner(int socket) {
  return {.greet =
              [this, socket](int number) {
                if (!numbers_.insert(number).second) return false;
                SetNoDelay(socket);
                send(socket, &kTcpWelcome, 1, MSG_NOSIGNAL);
                if (int(numbers_.size()) == kTcpConnections) listener_.reset(-1);
                return true;
              },
          .begin = [this](uint64_t sequence, uint64_t bytes) { return Begin(sequence, bytes); },
          .whole = [this](uint64_t sequence) { Arrive(sequence); }};
}

absl::StatusOr<std::span<std::byte>> TcpReceiveChannel::Begin(uint64_t sequence, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto it = posts_.find(sequence);
  if (it == posts_.end() || it->second.coming || it->second.bytes != bytes) {
    return absl::InternalError("the peer sent what was not granted");
  }
  it->second.coming = true;
  return std::span<std::byte>(slots_[size_t(it->second.slot)].get(), it->second.bytes);
}

void TcpReceiveChannel::Arrive(uint64_t sequence) {
  uint64_t from = 0, to = 0;
  {
    absl::MutexLock lock(&mutex_);
    posts_.at(sequence).arrived = true;
    from = announced_;
    for (auto it = posts_.find(announced_); it != posts_.end() && it->second.arrived; it = posts_.find(announced_)) {
      ++announced_;
    }
    to = announced_;
  }
  for (uint64_t s = from; s < to; ++s) on_arrival_(s);
}

}  // namespace sluice::kvtransfer
