#include "kvtransfer/tcp_send_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"
#include "kvtransfer/error_info.h"

namespace sluice::kvtransfer {

TcpSendChannel::TcpSendChannel(std::vector<Fd> sockets)
    : sockets_(std::move(sockets)), under_way_(sockets_.size()), waiting_(sockets_.size()) {
  thread_ = std::thread([this] { Run(); });
}

TcpSendChannel::~TcpSendChannel() {
  Close();
  thread_.join();
}

absl::StatusOr<std::span<std::byte>> TcpSendChannel::Buffer(uint64_t sequence, size_t bytes) {
  if (absl::Status s = status(); !s.ok()) return s;
  if (sequence != sent_) {
    return absl::FailedPreconditionError(absl::StrFormat("%d bytes of %d are out of order", bytes, sequence));
  }
  if (filling_ == nullptr) {
    absl::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      filling_ = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (filling_ == nullptr) filling_ = std::make_unique<Frame>();
  // Never smaller: a frame's memory is used again and again.
  if (filling_->memory.size() < bytes) filling_->memory.resize(bytes);
  filling_->bytes = bytes;
  filling_->written = 0;
  WriteFrameHeader(sequence, bytes, filling_->header.data());
  return std::span<std::byte>(filling_->memory.data(), bytes);
}

absl::Status TcpSendChannel::Send(uint64_t sequence) {
  if (sequence != sent_ || filling_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrFormat("send of %d out of order", sequence));
  }
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    waiting_[sequence % sockets_.size()].push_back(std::move(filling_));
  }
  ++sent_;
  wakeup_.Signal();
  return absl::OkStatus();
}

absl::Status TcpSendChannel::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

void TcpSendChannel::Close() {
  Fail(absl::UnavailableError("the channel was closed"));
}

void TcpSendChannel::Fail(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = why;
  }
  wakeup_.Signal();
}

void TcpSendChannel::Run() {
  while (status().ok()) {
    std::vector<pollfd> fds = {{wakeup_.fd(), POLLIN, 0}};
    for (size_t i = 0; i < sockets_.size(); ++i) {
      absl::MutexLock lock(&mutex_);
      const bool writes = under_way_[i] != nullptr || !waiting_[i].empty();
      fds.push_back({sockets_[i].get(), short(POLLIN | (writes ? POLLOUT : 0)), 0});
    }
    if (poll(fds.data(), nfds_t(fds.size()), -1) < 0 && errno != EINTR) {
      return Fail(absl::ErrnoToStatus(errno, "poll"));
    }
    if (fds[0].revents != 0) wakeup_.Clear();
    for (size_t i = 0; i < sockets_.size(); ++i) {
      // The receiver says nothing after its welcome: what can be read is the end.
      if (fds[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) {
        return Fail(PeerLost("the receiving process has closed the channel or died"));
      }
      if (fds[i + 1].revents & POLLOUT) Write(i);
    }
  }
  for (const Fd& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
}

void TcpSendChannel::Write(size_t connection) {
  std::unique_ptr<Frame>& frame = under_way_[connection];
  for (;;) {
    if (frame == nullptr) {
      absl::MutexLock lock(&mutex_);
      if (waiting_[connection].empty()) return;
      frame = std::move(waiting_[connection].front());
      waiting_[connection].pop_front();
    }
    const size_t header_left = frame->written < kTcpHeaderBytes ? kTcpHeaderBytes - frame->written : 0;
    const size_t body_done = frame->written > kTcpHeaderBytes ? frame->written - kTcpHeaderBytes : 0;
    iovec parts[2] = {{frame->header.data() + (kTcpHeaderBytes - header_left), header_left},
                      {frame->memory.data() + body_done, frame->bytes - body_done}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t n = sendmsg(sockets_[connection].get(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return Fail(PeerLost("the connection to the receiving process has ended"));
    frame->written += size_t(n);
    if (frame->written < kTcpHeaderBytes + frame->bytes) continue;
    absl::MutexLock lock(&mutex_);
    free_.push_back(std::move(frame));
  }
}

}  // namespace sluice::kvtransfer
