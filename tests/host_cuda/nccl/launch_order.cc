#include "tests/host_cuda/nccl/launch_order.h"

namespace host_cuda::nccl {
namespace {

constexpr size_t kRemembered = 256;

}  // namespace

std::string LaunchOrder::Add(const std::string& peer_name, const std::string& communicator, bool sent_by_us, bool own,
                             const LaunchNote& note) {
  std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[peer_name];
  Channel& channel = peer.channels[{communicator, sent_by_us}];
  (own ? channel.own : channel.theirs).push_back(note);
  std::string found;
  while (!channel.own.empty() && !channel.theirs.empty()) {
    const Pair pair{channel.own.front(), channel.theirs.front(), communicator};
    channel.own.pop_front();
    channel.theirs.pop_front();
    for (const Pair& other : peer.pairs) {
      if (other.communicator == communicator) continue;
      if ((pair.own.number < other.own.number) == (pair.theirs.number < other.theirs.number)) continue;
      const bool here_first = pair.own.number < other.own.number;
      const Pair& first = here_first ? pair : other;
      const Pair& second = here_first ? other : pair;
      found = "launch order: this rank launches " + first.own.what + ", then " + second.own.what +
              "; its peer launches " + second.theirs.what + ", then " + first.theirs.what +
              ": two communicators of one device in opposite orders can wait for one another forever";
      break;
    }
    peer.pairs.push_back(pair);
    if (peer.pairs.size() > kRemembered) peer.pairs.pop_front();
  }
  return found;
}

}  // namespace host_cuda::nccl
