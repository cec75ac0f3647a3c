// How the ranks of a communicator find one another: each listens under a name made of the id and its rank, connects to
// the lower ranks and waits for the higher ones.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>

#include "tests/host_cuda/nccl/communicator.h"

namespace host_cuda::nccl {
namespace {

std::string DeviceName(int device) {
  static const uint64_t salt = std::random_device{}();
  return std::to_string(getpid()) + "." + std::to_string(salt) + ":" + std::to_string(device);
}

socklen_t Address(const std::string& id, int rank, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;  // abstract: goes with its processes
  const std::string name = "host_cuda_nccl-" + id + "-" + std::to_string(rank);
  std::memcpy(address->sun_path + 1, name.data(), std::min(name.size(), sizeof address->sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

bool Communicator::Connect() {
  int listener = -1;
  if (!Listen(&listener)) return false;
  bool all = true;
  for (int rank = 0; rank < me.rank && all; ++rank) all = Reach(rank);
  for (int i = me.rank + 1; i < me.ranks && all; ++i) all = AcceptOne(listener);
  close(listener);
  return all;
}

bool Communicator::Listen(int* listener) {
  sockaddr_un address;
  const socklen_t length = Address(me.id, me.rank, &address);
  *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (bind(*listener, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(*listener, 64) == 0) return true;
  std::lock_guard<std::mutex> lock(mutex);
  Fail(errno == EADDRINUSE ? ncclInvalidUsage : ncclSystemError,
       Name() + ": " + (errno == EADDRINUSE ? "this rank was initialised twice" : std::strerror(errno)));
  close(*listener);
  return false;
}

// Until the attempt succeeds or the communicator is given up; says so, once, when it takes long.
// Until the attempt succeeds or the communicator is given up or a rank that had come is gone; says so, once, when it
// takes long.
bool Communicator::WaitFor(const std::function<bool()>& attempt, const std::string& what) {
  const auto begun = Clock::now();
  bool said = false;
  while (!attempt()) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      PumpLinks();
      if (aborted || closing_ || state != ncclInProgress) return false;
      if (!said && Clock::now() - begun > settings.timeout) {
        said = true;
        Remark(Name() + " waits for " + what + " since " + std::to_string(settings.timeout.count()) + " ms");
      }
    }
    usleep(1000);
  }
  return true;
}

bool Communicator::Reach(int rank) {
  sockaddr_un address;
  const socklen_t length = Address(me.id, rank, &address);
  int out = -1;
  const bool reached = WaitFor(
      [&] {
        out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(out, reinterpret_cast<sockaddr*>(&address), length) == 0) return true;
        close(out);
        return false;
      },
      "rank " + std::to_string(rank) + " to come");
  if (!reached) return false;
  const int32_t mine = me.rank;
  // One that left at once is noticed when it has to greet.
  [[maybe_unused]] const ssize_t n = send(out, &mine, sizeof mine, MSG_NOSIGNAL);
  return Adopt(out, rank);
}

bool Communicator::AcceptOne(int listener) {
  int in = -1;
  const bool came =
      WaitFor([&] { return (in = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; }, "a higher rank to come");
  if (!came) return false;
  int32_t rank = -1;
  ssize_t got = -1;
  const bool said = WaitFor(
      [&] {
        got = recv(in, &rank, sizeof rank, MSG_DONTWAIT);
        return got >= 0 || errno != EAGAIN;
      },
      "a higher rank to say which it is");
  if (said && got == sizeof rank && rank > me.rank && rank < me.ranks) return Adopt(in, rank);
  close(in);
  if (!said) return false;
  std::lock_guard<std::mutex> lock(mutex);
  if (got == sizeof rank) {
    Wrong(Name() + ": a rank " + std::to_string(rank) + " came, so the ranks disagree about their number", -1);
  } else {
    Fail(ncclRemoteError, Name() + ": a higher rank came and is gone");
  }
  return false;
}

// Both sides tell which device they are before anything else.
bool Communicator::Adopt(int socket, int rank) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    Link& link = links[static_cast<size_t>(rank)];
    link.Open(socket);
    link.Send(Kind::kHello, DeviceName(device));
  }
  return WaitFor(
      [&] {
        std::lock_guard<std::mutex> lock(mutex);
        PumpLinks();
        return !links[static_cast<size_t>(rank)].device.empty();  // it may greet and leave at once
      },
      "rank " + std::to_string(rank) + " to greet");
}

}  // namespace host_cuda::nccl
