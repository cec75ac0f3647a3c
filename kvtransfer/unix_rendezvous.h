// How the two ends of a channel within a host meet: an abstract Unix socket, a token that names the right peer, and a
// file descriptor that is handed over. The socket then stays open: its end says that the peer is gone.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/shm_segment.h"  // Fd

namespace sluice::kvtransfer {

// True when the peer's end of the socket is closed.
bool PeerGone(int socket);

// Where a receiver waits for its sender.
class UnixListener {
 public:
  static absl::StatusOr<UnixListener> Create();

  // What the sender needs to know: secret, as whoever has it is taken for the sender.
  const std::string& endpoint() const { return endpoint_; }

  // Hands `fd` to the first connection that shows the token and returns that; others are closed. Nothing listens
  // afterwards. Not ok() once `go_on` says no, which is asked several times a second.
  Fd Accept(int fd, const std::function<bool()>& go_on);

 private:
  UnixListener(Fd socket, std::string endpoint) : socket_(std::move(socket)), endpoint_(std::move(endpoint)) {}
  Fd socket_;
  std::string endpoint_;
};

struct UnixMeeting {
  Fd socket, handed_over;
};

// INVALID_ARGUMENT for a malformed endpoint, UNAVAILABLE when nobody answers, DEADLINE_EXCEEDED.
absl::StatusOr<UnixMeeting> MeetUnixListener(const std::string& endpoint, absl::Duration timeout);

}  // namespace sluice::kvtransfer
