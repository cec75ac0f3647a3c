// The sending end of a TCP channel; see tcp_channel.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace sluice::kvtransfer {

// Lock order: mutex_ is a leaf.
class TcpSendChannel final : public SendChannel {
 public:
  // Welcomed connections, in the order of their numbers.
  explicit TcpSendChannel(std::vector<Fd> sockets);
  ~TcpSendChannel() override;

  absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) override;
  absl::Status Send(uint64_t sequence) override;
  absl::Status status() const override;
  void Close() override;

 private:
  // A frame on its way: its header and as much of `memory` as it has bytes.
  struct Frame {
    std::array<std::byte, kTcpHeaderBytes> header;
    std::vector<std::byte> memory;
    size_t bytes = 0;
    size_t written = 0;  // of header and bytes
  };

  void Run();
  // Writes to a connection until it takes no more.
  void Write(size_t connection);
  void Fail(const absl::Status& why);

  const std::vector<Fd> sockets_;
  Wakeup wakeup_;
  std::vector<std::unique_ptr<Frame>> under_way_;  // [connections], the thread's own; null: none

  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::deque<std::unique_ptr<Frame>>> waiting_ ABSL_GUARDED_BY(mutex_);  // [connections]
  std::vector<std::unique_ptr<Frame>> free_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Frame> filling_;  // the caller's: what Buffer gave
  uint64_t sent_ = 0;               // likewise

  std::thread thread_;
};

}  // namespace sluice::kvtransfer
