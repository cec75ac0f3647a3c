// Finds operations that two devices launch in opposite orders on two communicators: with NCCL's kernels holding their
// device until their peer has come, that is a deadlock that waits to happen, whatever streams they are on.
//
// Each device numbers its launches over all its communicators. What one sends, the other receives: the n-th transfer of
// one direction on one communicator is the same at both ends, and gives a pair of numbers. Two pairs of different
// communicators must be in the same order at both ends. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace host_cuda::nccl {

struct LaunchNote {
  uint64_t number = 0;  // of the launch on its device
  std::string what;     // "ncclAllReduce of 100 float32 (sum) on communicator ab12"
};

class LaunchOrder {
 public:
  // `peer`: the other device; `channel`: communicator and direction; `own`: whose launch this is. Empty: fine; else the
  // inversion in words.
  std::string Add(const std::string& peer, const std::string& communicator, bool sent_by_us, bool own,
                  const LaunchNote& note);

 private:
  struct Pair {
    LaunchNote own, theirs;
    std::string communicator;
  };
  struct Channel {
    std::deque<LaunchNote> own, theirs;
  };
  struct Peer {
    std::map<std::pair<std::string, bool>, Channel> channels;
    std::deque<Pair> pairs;
  };
  std::mutex mutex_;
  std::map<std::string, Peer> peers_;
};

}  // namespace host_cuda::nccl
