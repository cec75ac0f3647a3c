#include "kvtransfer/unix_rendezvous.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice::kvtransfer {
namespace {

constexpr size_t kNameBytes = 16, kTokenBytes = 32;
constexpr int kLookMillis = 20;

absl::Status Errno(const char* what) {
  return absl::ErrnoToStatus(errno, what);
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

}  // namespace

bool PeerGone(int socket) {
  char byte;
  const ssize_t n = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

absl::StatusOr<UnixListener> UnixListener::Create() {
  std::string secret(kNameBytes + kTokenBytes, '\0');
  if (getrandom(secret.data(), secret.size(), 0) != ssize_t(secret.size())) return Errno("getrandom");
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.ok()) return Errno("socket");
  sockaddr_un address;
  const socklen_t length = AbstractAddress(secret.substr(0, kNameBytes), &address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return Errno("bind");
  if (listen(listener.get(), 4) != 0) return Errno("listen");
  return UnixListener(std::move(listener), std::move(secret));
}

Fd UnixListener::Accept(int fd, const std::function<bool()>& go_on) {
  while (go_on()) {
    pollfd waiting = {socket_.get(), POLLIN, 0};
    if (poll(&waiting, 1, kLookMillis) <= 0) continue;
    Fd peer(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.ok()) continue;
    const timeval limit = {1, 0};
    setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    char token[kTokenBytes];
    const ssize_t n = recv(peer.get(), token, sizeof(token), MSG_WAITALL);
    if (n != ssize_t(kTokenBytes) || std::memcmp(token, &endpoint_[kNameBytes], kTokenBytes) != 0) continue;
    if (SendFd(peer.get(), fd).ok()) {
      socket_.reset(-1);
      return peer;
    }
  }
  return Fd();
}

absl::StatusOr<UnixMeeting> MeetUnixListener(const std::string& endpoint, absl::Duration timeout) {
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
  return UnixMeeting{std::move(socket), *std::move(fd)};
}

}  // namespace sluice::kvtransfer
