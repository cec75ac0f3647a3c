#include "kvtransfer/flow_book.h"

#include <algorithm>
#include <utility>

namespace sluice::kvtransfer {
namespace {

void Add(const EpochTotals& totals, v1::KvFlow& to) {
  to.set_bytes(to.bytes() + totals.bytes);
  to.set_pieces(to.pieces() + totals.pieces);
  to.set_corrupt_pieces(to.corrupt_pieces() + totals.corrupt_pieces);
  to.set_void_pieces(to.void_pieces() + totals.void_pieces);
  to.set_stale_messages(to.stale_messages() + totals.stale_messages);
}

}  // namespace

void FlowBook::Up(PeerRank peer, const std::string& channel) {
  Flow& flow = flows_[peer];
  flow.sum.set_peer_incarnation(peer.incarnation);
  flow.sum.set_peer_rank(peer.rank);
  flow.sum.set_channel(channel);
  flow.sum.set_epochs(flow.sum.epochs() + 1);
  changed_ = true;
  Forget();
}

void FlowBook::Update(PeerRank peer, const EpochTotals& totals, bool busy, absl::Time now) {
  const auto it = flows_.find(peer);
  if (it == flows_.end() || it->second.sum.channel().empty()) return;
  Flow& flow = it->second;
  flow.epoch = totals;
  if (flow.is_busy) flow.busy += now - flow.busy_since;
  changed_ |= flow.is_busy || busy;
  flow.is_busy = busy;
  flow.busy_since = now;
}

void FlowBook::Down(PeerRank peer, absl::Time now) {
  const auto it = flows_.find(peer);
  if (it == flows_.end() || it->second.sum.channel().empty()) return;
  Flow& flow = it->second;
  Update(peer, flow.epoch, false, now);
  Add(std::exchange(flow.epoch, {}), flow.sum);
  flow.sum.clear_channel();
  flow.sum.set_aborts(flow.sum.aborts() + 1);
  flow.down_number = ++downs_;
  changed_ = true;
}

void FlowBook::Ended(PeerRank peer, bool committed, absl::Duration exposed) {
  const auto it = flows_.find(peer);
  if (it == flows_.end()) return;
  v1::KvFlow& sum = it->second.sum;
  if (committed) {
    sum.set_transfers(sum.transfers() + 1);
    it->second.exposed += exposed;
  } else {
    sum.set_failed_transfers(sum.failed_transfers() + 1);
  }
  changed_ = true;
}

std::vector<v1::KvFlow> FlowBook::flows() const {
  std::vector<v1::KvFlow> all;
  for (const auto& [peer, flow] : flows_) {
    v1::KvFlow& out = all.emplace_back(flow.sum);
    Add(flow.epoch, out);
    out.set_busy_seconds(absl::ToDoubleSeconds(flow.busy));
    out.set_exposed_seconds(absl::ToDoubleSeconds(flow.exposed));
  }
  return all;
}

bool FlowBook::TakeChanged() {
  return std::exchange(changed_, false);
}

void FlowBook::Forget() {
  while (flows_.size() > kMostPeers) {
    auto oldest = flows_.end();
    for (auto it = flows_.begin(); it != flows_.end(); ++it) {
      if (!it->second.sum.channel().empty()) continue;
      if (oldest == flows_.end() || it->second.down_number < oldest->second.down_number) oldest = it;
    }
    if (oldest == flows_.end()) return;
    flows_.erase(oldest);
  }
}

}  // namespace sluice::kvtransfer
