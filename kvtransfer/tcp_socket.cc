#include "kvtransfer/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace sluice::kvtransfer {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
  }
  return Addresses(found, &freeaddrinfo);
}

// True when the socket is ready for `events`; false when time is up.
bool AwaitReady(int socket, short events, absl::Time deadline) {
  for (;;) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd waiting = {socket, events, 0};
    const int ready = poll(&waiting, 1, int(std::clamp<int64_t>(left, 0, 60000)));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR) return true;  // the next call tells
  }
}

}  // namespace

absl::StatusOr<Fd> ListenTcp(const std::string& host, int* port) {
  absl::StatusOr<Addresses> addresses = Resolve(host, 0, AI_PASSIVE);
  if (!addresses.ok()) return addresses.status();
  const addrinfo* a = addresses->get();
  Fd socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound = {};
  socklen_t length = sizeof bound;
  if (!socket.ok() || bind(socket.get(), a->ai_addr, a->ai_addrlen) != 0 || listen(socket.get(), 16) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listening for KV on ", host));
  }
  *port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  return socket;
}

absl::StatusOr<Fd> ConnectTcp(const std::string& host, int port, absl::Time deadline) {
  absl::StatusOr<Addresses> addresses = Resolve(host, port, 0);
  if (!addresses.ok()) return addresses.status();
  int error = 0;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
    Fd socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.ok()) return absl::ErrnoToStatus(errno, "socket");
    if (connect(socket.get(), a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS) {
      error = errno;
      continue;
    }
    if (!AwaitReady(socket.get(), POLLOUT, deadline))
      return absl::DeadlineExceededError("the receiver does not answer");
    socklen_t length = sizeof error;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) continue;
    SetNoDelay(socket.get());
    return socket;
  }
  return absl::UnavailableError(absl::StrCat("no receiver at ", host, ":", port, ": ", std::strerror(error)));
}

absl::Status SendAll(int socket, const void* data, size_t bytes, absl::Time deadline) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(socket, from, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      from += n, bytes -= size_t(n);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("the connection ended: ", std::strerror(errno)));
    } else if (!AwaitReady(socket, POLLOUT, deadline)) {
      return absl::DeadlineExceededError("the receiver takes nothing");
    }
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(int socket, void* data, size_t bytes, absl::Time deadline) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(socket, to, bytes, 0);
    if (n > 0) {
      to += n, bytes -= size_t(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return absl::UnavailableError("the receiver closed the connection");
    } else if (!AwaitReady(socket, POLLIN, deadline)) {
      return absl::DeadlineExceededError("the receiver says nothing");
    }
  }
  return absl::OkStatus();
}

void SetNoDelay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Wakeup::Wakeup() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Wakeup::Signal() {
  const uint64_t one = 1;
  (void)!write(fd_.get(), &one, sizeof one);  // full means signalled
}

void Wakeup::Clear() {
  uint64_t count;
  (void)!read(fd_.get(), &count, sizeof count);
}

}  // namespace sluice::kvtransfer
