#include "kvtransfer/prefill_endpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "grpcpp/create_channel.h"
#include "kvtransfer/cuda_ipc_channel.h"
#include "kvtransfer/error_info.h"
#include "kvtransfer/fingerprint.h"
#include "kvtransfer/nccl_channel.h"
#include "kvtransfer/shards_proto.h"
#include "kvtransfer/shm_channel.h"
#include "kvtransfer/tcp_channel.h"

namespace sluice::kvtransfer {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
constexpr absl::Duration kChannelTimeout = absl::Seconds(2);
constexpr absl::Duration kFarewell = absl::Milliseconds(300);

// Of HOST:PORT or [HOST]:PORT.
std::string HostOf(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

PrefillEndpoint::Options WithShards(PrefillEndpoint::Options options) {
  if (options.shards.empty()) options.shards = {WholeShard(options.kv)};
  return options;
}

}  // namespace

PrefillEndpoint::PrefillEndpoint(Options options, Callbacks callbacks)
    : options_(WithShards(std::move(options))),
      callbacks_(std::move(callbacks)),
      nccl_rings_(RingsOf(options_.kv, options_.most_nccl)),
      thread_(std::make_shared<SerialThread>(kTick, [this](absl::Time now) { Tick(now); })) {}

PrefillEndpoint::~PrefillEndpoint() {
  SetPeers({});
  {
    absl::MutexLock lock(&links_mutex_);
    links_mutex_.Await(absl::Condition(this, &PrefillEndpoint::NoLinks));
  }
  thread_->Stop();
}

void PrefillEndpoint::SetPeers(Peers peers) {
  thread_->Post([this, peers = std::move(peers)] {
    std::vector<PeerRank> gone;
    for (const auto& [peer, pair] : pairs_) {
      const auto it = peers.find(peer.incarnation);
      if (it == peers.end() || peer.rank >= int(it->second.size())) gone.push_back(peer);
    }
    for (const PeerRank& peer : gone) {
      Break(peer, pairs_.at(peer), PeerLost("the decode worker has left"));
      pairs_.erase(peer);
    }
    if (peers.empty()) EndFarewells(absl::InfiniteFuture());
    for (const auto& [incarnation, addresses] : peers) {
      for (int rank = 0; rank < int(addresses.size()); ++rank) {
        const auto [it, fresh] = pairs_.try_emplace(PeerRank{incarnation, rank});
        it->second.address = addresses[size_t(rank)];
        if (fresh) Dial(it->first, it->second);
      }
    }
  });
}

void PrefillEndpoint::Dial(PeerRank peer, Pair& pair) {
  const uint64_t epoch = pair.epoch = ++last_epoch_[peer];
  pair.state = PairState::kConnecting;
  pair.last_heard = pair.last_ping = thread_->Now();
  if (pair.dial == nullptr) {
    grpc::ChannelArguments arguments;
    const auto credentials = options_.security.client(arguments);
    pair.dial = grpc::CreateCustomChannel(pair.address, credentials, arguments);
  }
  {
    absl::MutexLock lock(&links_mutex_);
    links_[{peer, epoch}] = pair.dial;
  }
  const auto post = [this, thread = thread_](auto task) { thread->Post(std::move(task)); };
  pair.link = OpenLink(pair.dial, {[this, post, peer, epoch](v1::ReceiverMessage message) {
                                     post([this, peer, epoch, m = std::move(message)] { OnMessage(peer, epoch, m); });
                                   },
                                   [this, post, peer, epoch](const absl::Status& why) {
                                     post([this, peer, epoch, why] { OnLinkEnd(peer, epoch, why); });
                                   }});
  pair.link->Send(MakeHello(peer, pair));
}

// All that may work with this peer; once none does, all are tried anew.
std::vector<std::string> PrefillEndpoint::ChannelsFor(const Pair& pair) const {
  std::vector<std::string> channels;
  for (const std::string& channel : options_.channels) {
    if (!pair.unfit.contains(channel)) channels.push_back(channel);
  }
  return channels.empty() ? options_.channels : channels;
}

v1::SenderMessage PrefillEndpoint::MakeHello(PeerRank peer, const Pair& pair) const {
  const uint64_t epoch = pair.epoch;
  v1::SenderMessage message;
  message.set_epoch(epoch);
  v1::SenderHello& hello = *message.mutable_hello();
  hello.set_sender_incarnation(options_.incarnation);
  hello.set_receiver_incarnation(peer.incarnation);
  hello.set_sender_rank(options_.rank);
  hello.set_receiver_rank(peer.rank);
  *hello.mutable_fingerprint() = options_.fingerprint;
  hello.set_sender_tp(int(options_.shards.size()));
  ToProto(options_.shards, *hello.mutable_shards());
  for (const std::string& channel : ChannelsFor(pair)) hello.add_channels(channel);
  hello.set_host_id(options_.host_id);
  if (LinksOf(options_.kv) != nullptr) hello.set_device_id(LinksOf(options_.kv)->device_id());
  hello.set_auth(options_.key.Proof(
      "kv sender", {epoch, options_.incarnation, peer.incarnation, uint64_t(options_.rank), uint64_t(peer.rank)}));
  return message;
}

void PrefillEndpoint::OnMessage(PeerRank peer, uint64_t epoch, const v1::ReceiverMessage& message) {
  const auto it = pairs_.find(peer);
  if (it == pairs_.end() || it->second.epoch != epoch || it->second.link == nullptr) return;
  Pair& pair = it->second;
  pair.last_heard = thread_->Now();
  if (message.has_hello()) return OnHello(peer, pair, message.hello());
  if (pair.machine == nullptr) return;
  pair.machine->OnMessage(message, pair.last_heard);
  CarryOut(peer, pair);
}

absl::Status PrefillEndpoint::CheckHello(PeerRank peer, const Pair& pair, const v1::ReceiverHello& hello) const {
  if (absl::Status refused = FromErrorInfo(hello.refused()); !refused.ok()) return refused;
  if (hello.receiver_incarnation() != peer.incarnation) {
    return absl::FailedPreconditionError("another process answers at the decode worker's address");
  }
  if (!options_.key.Accepts(
          hello.auth(), "kv receiver",
          {pair.epoch, options_.incarnation, peer.incarnation, uint64_t(options_.rank), uint64_t(peer.rank)},
          hello.channel_endpoint())) {
    return absl::UnauthenticatedError(
        "the decode worker does not have this cluster's key; give all the same --cluster-key");
  }
  if (absl::Status fit = CheckFit(options_.fingerprint, hello.fingerprint()); !fit.ok()) return fit;
  return absl::OkStatus();
}

void PrefillEndpoint::OnHello(PeerRank peer, Pair& pair, const v1::ReceiverHello& hello) {
  if (pair.channel != nullptr) return Break(peer, pair, absl::InternalError("a second hello"));
  absl::Status refused = CheckHello(peer, pair, hello);
  absl::StatusOr<std::vector<ReshardPart>> plan = PlanReshard(options_.shards, FromProto(hello.shards()));
  if (refused.ok()) refused = plan.status();
  if (refused.ok()) pair.parts = PartsBetween(*plan, options_.rank, peer.rank);
  for (const KvShard& part : pair.parts) {
    const int64_t least = 2 * int64_t(part.head_end - part.head_begin) * int64_t(options_.kv.layout.head_bytes());
    if (refused.ok() && least > hello.max_piece_bytes()) {
      refused = absl::FailedPreconditionError(
          absl::StrCat("one block of one layer has ", least, " bytes, the peer takes ", hello.max_piece_bytes()));
    }
  }
  if (!refused.ok()) {
    LOG(WARNING) << "decode worker " << pair.address << " refuses to pair: " << refused.message();
    Break(peer, pair, refused);
    pair.state = PairState::kRefused;
    return TellOfPair(peer.incarnation, refused);
  }
  absl::StatusOr<std::unique_ptr<SendChannel>> channel = Connect(peer, pair, hello);
  if (absl::IsFailedPrecondition(channel.status())) {
    LOG(WARNING) << "no KV to decode worker " << pair.address << " over " << hello.channel() << ": "
                 << channel.status().message();
    pair.unfit.insert(hello.channel());
  }
  if (!channel.ok()) return Break(peer, pair, channel.status());
  pair.channel = options_.wrap_channel ? options_.wrap_channel(std::move(*channel)) : std::move(*channel);
  pair.channel_name = hello.channel();
  pair.max_piece_bytes = hello.max_piece_bytes();
  if (pair.channel->ready()) Join(peer, pair);
}

// The ends of its channel have met.
void PrefillEndpoint::Join(PeerRank peer, Pair& pair) {
  pair.machine = std::make_unique<Sender>(pair.epoch, options_.sender);
  pair.bad_channel_ticks = pair.failed_meetings = 0;
  pair.state = PairState::kUp;
  pair.backoff = absl::Milliseconds(50);
  flows_.Up(peer, pair.channel_name);
  LOG(INFO) << "paired with decode worker " << pair.address << " over " << pair.channel_name << ", epoch "
            << pair.epoch;
  TellOfPair(peer.incarnation, absl::OkStatus());
}

// FAILED_PRECONDITION where this channel can't work with that peer.
absl::StatusOr<std::unique_ptr<SendChannel>> PrefillEndpoint::Connect(PeerRank peer, const Pair& pair,
                                                                      const v1::ReceiverHello& hello) const {
  const std::string endpoint = options_.key.Mask(
      "kv endpoint", {pair.epoch, options_.incarnation, peer.incarnation, uint64_t(options_.rank), uint64_t(peer.rank)},
      hello.channel_endpoint());
  if (hello.channel() == "tcp") return ConnectTcpSender(HostOf(pair.address), endpoint, kChannelTimeout);
  if (hello.channel() == "shm") return ConnectShmSender(endpoint, kChannelTimeout);
  kernels::DeviceLinks* const links = LinksOf(options_.kv);
  if (hello.channel() == "cuda-ipc" && links != nullptr) {
    return ConnectCudaIpcSender(endpoint, kChannelTimeout, *links);
  }
  if (hello.channel() == "nccl" && links != nullptr) {
    return ConnectNcclSender(HostOf(pair.address), endpoint, kChannelTimeout,
                             {hello.window_pieces(), size_t(hello.max_piece_bytes())}, nccl_rings_);
  }
  return absl::InternalError(absl::StrCat("the decode worker chose the channel \"", hello.channel(), "\""));
}

// A worker is a peer as a whole: up when all its ranks are, refused when one of them is.
void PrefillEndpoint::TellOfPair(uint64_t incarnation, const absl::Status& why) {
  PairState state = PairState::kUp;
  for (const PeerRank& peer : RanksOf(incarnation)) {
    const PairState its = pairs_.at(peer).state;
    if (its == PairState::kRefused) return callbacks_.on_pair(incarnation, its, why);
    if (its != PairState::kUp) state = its;
  }
  callbacks_.on_pair(incarnation, state, why);
}

std::vector<PeerRank> PrefillEndpoint::RanksOf(uint64_t incarnation) const {
  std::vector<PeerRank> ranks;
  for (auto it = pairs_.lower_bound({incarnation, 0}); it != pairs_.end() && it->first.incarnation == incarnation;
       ++it) {
    ranks.push_back(it->first);
  }
  return ranks;
}

void PrefillEndpoint::OnLinkEnd(PeerRank peer, uint64_t epoch, const absl::Status& why) {
  const auto it = pairs_.find(peer);
  const bool current = it != pairs_.end() && it->second.epoch == epoch && it->second.link != nullptr;
  {
    absl::MutexLock lock(&links_mutex_);
    links_.erase({peer, epoch});
  }
  if (!current) return;
  // A decode worker that ends a pair for a reason says so; another code is that reason's.
  const bool lost = why.ok() || absl::IsUnavailable(why) || absl::IsCancelled(why);
  Break(peer, it->second, lost ? PeerLost("the link to the decode worker has ended") : why);
}

// Ends the pair's epoch and all its transfers; the next attempt comes after the backoff.
void PrefillEndpoint::Break(PeerRank peer, Pair& pair, absl::Status why) {
  MarkDown(peer, pair, why);
  const bool aborted = pair.machine != nullptr && pair.machine->dead();
  if (pair.machine != nullptr) {
    pair.breaking = true;  // CarryOut must not come back here
    pair.machine->Lose(why);
    CarryOut(peer, pair);
    pair.breaking = false;
  }
  // Twice in a row is no accident of the other end's.
  if (pair.channel != nullptr && pair.machine == nullptr && ++pair.failed_meetings % 2 == 0) {
    pair.unfit.insert(pair.channel_name);
    LOG(WARNING) << "no KV to decode worker " << pair.address << " over " << pair.channel_name << ": " << why.message();
  }
  flows_.Down(peer, thread_->Now());
  pair.machine.reset();
  pair.channel.reset();
  if (pair.link != nullptr && aborted) {
    farewells_.push_back({std::exchange(pair.link, nullptr), thread_->Now() + kFarewell});
  } else if (pair.link != nullptr) {
    std::exchange(pair.link, nullptr)->Close(why);
  }
  if (pair.state == PairState::kRefused) return;
  pair.retry_at = thread_->Now() + pair.backoff;
  pair.backoff = std::min(pair.backoff * 2, kMaxBackoff);
}

void PrefillEndpoint::EndFarewells(absl::Time now) {
  std::erase_if(farewells_, [now](const Farewell& farewell) {
    if (now < farewell.until) return false;
    farewell.link->Close(absl::OkStatus());
    return true;
  });
}

// Before the pair's transfers end: who hears of an end must not believe in the pair any more.
void PrefillEndpoint::MarkDown(PeerRank peer, Pair& pair, const absl::Status& why) {
  if (pair.state != PairState::kUp) return;
  pair.state = PairState::kConnecting;
  LOG(WARNING) << "lost the pair with decode worker " << pair.address << ": " << why.message();
  TellOfPair(peer.incarnation, why);
}

void PrefillEndpoint::Open(TransferId id, v1::RequestKey key, std::vector<int32_t> blocks) {
  thread_->Post([this, id, key = std::move(key), blocks = std::move(blocks)]() mutable {
    const std::vector<PeerRank> ranks = RanksOf(id.decode_incarnation);
    Transfer& transfer = transfers_[id];
    transfer.blocks = std::move(blocks);
    transfer.end.lease_id = id.lease_id;
    const bool up = std::all_of(ranks.begin(), ranks.end(),
                                [this](const PeerRank& peer) { return pairs_.at(peer).machine != nullptr; });
    if (ranks.empty() || !up) return EndNow(id, PeerLost("no link to the decode worker"));
    for (const PeerRank& peer : ranks) transfer.open[peer.rank] = 0;
    AtOpenPairs(id, [&](Sender& machine, const Pair&) { machine.Open(id.lease_id, key, thread_->Now()); });
  });
}

void PrefillEndpoint::AddBlocks(TransferId id, int begin, int end, LayerRange layers) {
  thread_->Post([this, id, begin, end, layers] {
    VLOG(2) << "KV blocks [" << begin << ", " << end << ") of lease " << id.lease_id << " are final in layers from "
            << layers.begin << " on";
    AtOpenPairs(id, [&](Sender& machine, const Pair& pair) {
      for (const KvShard& part : pair.parts) {
        for (const v1::Piece& piece : SplitBlocks(options_.kv.layout, part, begin, end, pair.max_piece_bytes, layers)) {
          machine.AddPiece(id.lease_id, piece, int64_t(PieceBytes(piece, options_.kv.layout)), thread_->Now());
        }
      }
    });
  });
}

void PrefillEndpoint::Commit(TransferId id, v1::Commit commit) {
  thread_->Post([this, id, commit = std::move(commit)] {
    AtOpenPairs(id, [&](Sender& machine, const Pair&) { machine.Commit(id.lease_id, commit, thread_->Now()); });
  });
}

void PrefillEndpoint::Cancel(TransferId id, absl::Status why) {
  thread_->Post([this, id, why = std::move(why)] {
    AtOpenPairs(id, [&](Sender& machine, const Pair&) { machine.Cancel(id.lease_id, why, thread_->Now()); });
  });
}

// What the call sets off may end the transfer, so it is looked up again for each pair.
void PrefillEndpoint::AtOpenPairs(TransferId id, const std::function<void(Sender&, const Pair&)>& call) {
  for (const PeerRank& peer : RanksOf(id.decode_incarnation)) {
    const auto transfer = transfers_.find(id);
    if (transfer == transfers_.end()) return;
    const auto it = pairs_.find(peer);
    if (!transfer->second.open.contains(peer.rank) || it == pairs_.end() || it->second.machine == nullptr) continue;
    call(*it->second.machine, it->second);
    CarryOut(peer, it->second);
  }
}

// Carries out what the machine ordered, until it orders nothing more.
void PrefillEndpoint::CarryOut(PeerRank peer, Pair& pair) {
  while (pair.machine != nullptr) {  // another rank's failure may have ended this one meanwhile
    Sender::Outbox outbox = pair.machine->Take();
    if (outbox.messages.empty() && outbox.gathers.empty() && outbox.acks.empty() && outbox.ends.empty()) break;
    if (pair.machine->dead()) MarkDown(peer, pair, pair.machine->death());
    for (v1::SenderMessage& message : outbox.messages) {
      if (pair.link != nullptr) pair.link->Send(std::move(message));
    }
    for (const Sender::Gather& gather : outbox.gathers) Gather(pair, gather, peer.incarnation);
    for (const Sender::Ack& ack : outbox.acks) OnAck(peer, ack);
    for (const Sender::End& end : outbox.ends) RankEnded(peer, end);
  }
  if (pair.machine == nullptr) return;
  flows_.Update(peer, pair.machine->totals(), pair.machine->busy(), thread_->Now());
  if (pair.machine->dead() && !pair.breaking) Break(peer, pair, pair.machine->death());
}

void PrefillEndpoint::OnAck(PeerRank peer, const Sender::Ack& ack) {
  const TransferId id{peer.incarnation, ack.lease_id};
  const auto it = transfers_.find(id);
  if (it == transfers_.end() || !it->second.open.contains(peer.rank)) return;
  it->second.open[peer.rank] = ack.bytes_acked;
  int64_t bytes = it->second.end.bytes_acked;
  for (const auto& [rank, acked] : it->second.open) bytes += acked;
  callbacks_.on_progress(id, bytes);
}

// At one rank. The whole ends with the last of them; where one fails the others are cancelled.
void PrefillEndpoint::RankEnded(PeerRank peer, const Sender::End& end) {
  const TransferId id{peer.incarnation, end.lease_id};
  const auto it = transfers_.find(id);
  if (it == transfers_.end() || it->second.open.erase(peer.rank) == 0) return;
  flows_.Ended(peer, end.status.ok(), std::max(absl::ZeroDuration(), end.last_ack - end.committed_at));
  Sender::End& whole = it->second.end;
  const bool first_failure = whole.status.ok() && !end.status.ok();
  if (first_failure) whole.status = end.status;
  whole.bytes_acked += end.bytes_acked;
  whole.pieces_acked += end.pieces_acked;
  whole.committed_at = std::max(whole.committed_at, end.committed_at);
  whole.last_ack = std::max(whole.last_ack, end.last_ack);
  if (it->second.open.empty()) {
    const Sender::End told = whole;
    transfers_.erase(it);
    return callbacks_.on_end(id, told);
  }
  if (!first_failure) return;
  AtOpenPairs(id, [&](Sender& machine, const Pair&) { machine.Cancel(id.lease_id, end.status, thread_->Now()); });
}

void PrefillEndpoint::Gather(Pair& pair, const Sender::Gather& gather, uint64_t incarnation) {
  if (pair.machine->dead()) return;
  const absl::StatusOr<std::span<std::byte>> buffer = pair.channel->Buffer(gather.sequence, size_t(gather.bytes));
  if (!buffer.ok()) return pair.machine->Abort(buffer.status());
  absl::StatusOr<uint64_t> checksum = 0;
  if (!gather.dropped) {
    checksum = GatherPiece(gather.piece, options_.kv, transfers_.at({incarnation, gather.lease_id}).blocks, *buffer,
                           pair.channel->device() != nullptr);
    if (!checksum.ok()) return pair.machine->Abort(checksum.status());
  }
  if (absl::Status s = pair.channel->Send(gather.sequence); !s.ok()) return pair.machine->Abort(s);
  VLOG(2) << "KV piece " << gather.sequence << " of lease " << gather.lease_id << " is sent, " << gather.bytes
          << " bytes";
  pair.machine->Sent(gather.sequence, *checksum, thread_->Now());
}

void PrefillEndpoint::EndNow(TransferId id, const absl::Status& why) {
  transfers_.erase(id);
  Sender::End end;
  end.lease_id = id.lease_id;
  end.status = why;
  callbacks_.on_end(id, end);
}

void PrefillEndpoint::KeepAlive(PeerRank peer, Pair& pair, absl::Time now) {
  if (pair.state == PairState::kRefused) return;
  if (pair.link == nullptr) {
    if (now >= pair.retry_at) Dial(peer, pair);
    return;
  }
  if (now - pair.last_heard > options_.silence_limit) {
    return Break(peer, pair, PeerLost("the decode worker is silent"));
  }
  if (pair.machine == nullptr && pair.channel != nullptr) {
    if (absl::Status s = pair.channel->status(); !s.ok()) return Break(peer, pair, s);
    if (pair.channel->ready()) Join(peer, pair);
  }
  if (pair.machine == nullptr) return;
  if (now - pair.last_ping > options_.ping_interval) {
    v1::SenderMessage ping;
    ping.set_epoch(pair.epoch);
    ping.mutable_ping()->set_token(uint64_t(absl::ToUnixNanos(now)));
    pair.link->Send(std::move(ping));
    pair.last_ping = now;
  }
  // One tick later, so that a peer that aborted the pair is heard first: it says why.
  if (absl::Status s = pair.channel->status(); !s.ok() && ++pair.bad_channel_ticks > 1) pair.machine->Abort(s);
  pair.machine->Tick(now);
  CarryOut(peer, pair);
}

void PrefillEndpoint::Tick(absl::Time now) {
  EndFarewells(now);
  for (auto& [peer, pair] : pairs_) KeepAlive(peer, pair, now);
  if (callbacks_.on_flows && flows_.TakeChanged()) callbacks_.on_flows(flows_.flows());
}

}  // namespace sluice::kvtransfer
