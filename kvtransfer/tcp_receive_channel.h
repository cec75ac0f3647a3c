// The receiving end of a TCP channel; see tcp_channel.h.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/tcp_frames.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace sluice::kvtransfer {

// Lock order: mutex_ is a leaf; the arrival callback is called without it.
class TcpReceiveChannel final : public ReceiveChannel {
 public:
  TcpReceiveChannel(const ChannelLimits& limits, Fd listener, std::string token, ArrivalCallback on_arrival);
  ~TcpReceiveChannel() override;

  absl::Status PostReceive(uint64_t sequence, size_t bytes) override;
  absl::StatusOr<std::span<const std::byte>> View(uint64_t sequence) override;
  void Release(uint64_t sequence) override;
  absl::Status status() const override;
  void Close() override;

 private:
  struct Connection {
    Fd socket;
    TcpFrames frames;
    absl::Time hello_until;
    bool over = false;
  };
  struct Post {
    int slot = 0;
    size_t bytes = 0;
    bool coming = false;   // a frame of it has begun
    bool arrived = false;  // it is whole; announced once all before it are
  };

  void Run();
  void Accept();
  // Reads what there is. Sets `over` at the end of the connection.
  void Read(Connection& c);
  TcpFrames::Owner MakeOwner(int socket);
  absl::StatusOr<std::span<std::byte>> Begin(uint64_t sequence, uint64_t bytes);
  void Arrive(uint64_t sequence);
  void Fail(const absl::Status& why);

  const ChannelLimits limits_;
  const std::string token_;
  const ArrivalCallback on_arrival_;
  std::vector<std::unique_ptr<std::byte[]>> slots_;  // [window][max_piece_bytes], resident where touched
  Wakeup wakeup_;
  // The thread's own.
  Fd listener_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::set<int> numbers_;  // of connections that showed the token

  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Post> posts_ ABSL_GUARDED_BY(mutex_);  // posted, not released
  std::vector<int> free_slots_ ABSL_GUARDED_BY(mutex_);
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t announced_ ABSL_GUARDED_BY(mutex_) = 0;  // sequences before it

  std::thread thread_;
};

}  // namespace sluice::kvtransfer
