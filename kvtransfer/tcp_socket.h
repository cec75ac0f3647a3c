// Sockets of the TCP channel: what both ends need of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/shm_segment.h"  // Fd

namespace sluice::kvtransfer {

// A listening socket that does not block, on a free port.
absl::StatusOr<Fd> ListenTcp(const std::string& host, int* port);

// A connected socket that does not block, without delays for small writes.
absl::StatusOr<Fd> ConnectTcp(const std::string& host, int port, absl::Time deadline);

// All of the bytes, or DEADLINE_EXCEEDED, or UNAVAILABLE.
absl::Status SendAll(int socket, const void* data, size_t bytes, absl::Time deadline);
absl::Status ReceiveAll(int socket, void* data, size_t bytes, absl::Time deadline);

void SetNoDelay(int socket);

// Wakes a thread that polls.
class Wakeup {
 public:
  Wakeup();
  int fd() const { return fd_.get(); }
  void Signal();
  void Clear();

 private:
  Fd fd_;
};

}  // namespace sluice::kvtransfer
