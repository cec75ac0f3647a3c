// The limit that transfers are given as a share of: two processes, one copies pieces from its pool into a ring or a
// socket, the other out of it into its own pool. The same pieces, runs and window as the endpoints, and nothing else:
// no control link, no checksums, no threads.
//
// Both are made before the fork; then one process sends and the other receives, as often as they like, in turns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvtransfer/channel.h"
#include "kvtransfer/piece_copy.h"
#include "proto/transfer.pb.h"

namespace sluice::bench {

// One process's side of a measurement.
struct Load {
  const kvtransfer::PoolView& kv;
  const std::vector<v1::Piece>& pieces;
  const std::vector<int32_t>& blocks;
};

class CopyPipeline {
 public:
  virtual ~CopyPipeline() = default;
  virtual void Send(const Load& load) = 0;     // returns when everything has landed
  virtual void Receive(const Load& load) = 0;  // likewise
};

// A ring of `window` slots in shared memory and two counters to wait on, for moments by spinning, then asleep.
std::unique_ptr<CopyPipeline> ShmPipeline(const kvtransfer::ChannelLimits& limits);

// As many connections over the loopback device as the TCP channel has, the pieces in turns.
std::unique_ptr<CopyPipeline> TcpPipeline(const kvtransfer::ChannelLimits& limits);

}  // namespace sluice::bench
