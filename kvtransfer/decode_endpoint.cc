#include "kvtransfer/decode_endpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
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

// Memory or places that others have now, or a device or NCCL that has failed once: what does not fit never fits.
bool MayPass(const absl::Status& why) {
  return absl::IsResourceExhausted(why) || absl::IsInternal(why) || absl::IsUnavailable(why);
}

DecodeEndpoint::Options WithShards(DecodeEndpoint::Options options) {
  if (options.shards.empty()) options.shards = {WholeShard(options.kv)};
  return options;
}

}  // namespace

DecodeEndpoint::DecodeEndpoint(Options options, OnEnd on_end, OnFlows on_flows)
    : options_(WithShards(std::move(options))),
      on_end_(std::move(on_end)),
      on_flows_(std::move(on_flows)),
      ipc_rings_(RingsOf(options_.kv, options_.most_rings)),
      nccl_rings_(RingsOf(options_.kv, options_.most_nccl)),
      thread_(std::make_shared<SerialThread>(kTick, [this](absl::Time now) { Tick(now); })),
      service_([this](std::shared_ptr<ReceiverLink> link) { return Accept(std::move(link)); }) {}

DecodeEndpoint::~DecodeEndpoint() {
  thread_->Post([this] {
    while (!pairs_.empty()) Break(pairs_.begin()->first, PeerLost("the decode worker is shutting down"));
  });
  thread_->Stop();
}

LinkHandler<v1::SenderMessage> DecodeEndpoint::Accept(std::shared_ptr<ReceiverLink> link) {
  const uint64_t id = next_link_.fetch_add(1);
  return {[this, thread = thread_, id, link](v1::SenderMessage message) {
            // Stamped here: the thread may be busy with pieces.
            thread->Post([this, id, link, m = std::move(message), received = absl::Now(), heard = thread->Now()] {
              OnMessage(id, link, m, received, heard);
            });
          },
          [this, thread = thread_, id](const absl::Status&) { thread->Post([this, id] { OnLinkEnd(id); }); }};
}

void DecodeEndpoint::OnMessage(uint64_t link_id, const std::shared_ptr<ReceiverLink>& link,
                               const v1::SenderMessage& message, absl::Time received, absl::Time heard) {
  const auto known = pair_of_link_.find(link_id);
  if (known == pair_of_link_.end()) return OnHello(link_id, link, message);
  if (!known->second.has_value()) return;  // it crossed the end of the pair
  const PeerRank peer = *known->second;
  Pair& pair = pairs_.at(peer);
  pair.last_heard = thread_->Now();
  if (message.has_commit()) {
    const auto lease = leases_.find(message.commit().lease_id());
    if (lease != leases_.end()) lease->second.committed = std::min(lease->second.committed, received);
  }
  pair.machine->OnMessage(message, heard);
  CarryOut(peer, pair);
}

absl::Status DecodeEndpoint::CheckKey(const v1::SenderMessage& message) const {
  const v1::SenderHello& hello = message.hello();
  if (options_.key.Accepts(hello.auth(), "kv sender",
                           {message.epoch(), hello.sender_incarnation(), hello.receiver_incarnation(),
                            uint64_t(hello.sender_rank()), uint64_t(hello.receiver_rank())})) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      "the prefill worker does not have this cluster's key; give all the same --cluster-key");
}

absl::Status DecodeEndpoint::CheckHello(const v1::SenderMessage& message) const {
  if (!message.has_hello()) return absl::FailedPreconditionError("the first message of a link must be its hello");
  if (absl::Status known = CheckKey(message); !known.ok()) return known;
  const v1::SenderHello& hello = message.hello();
  if (hello.receiver_incarnation() != options_.incarnation) {
    return absl::FailedPreconditionError(absl::StrFormat("stale incarnation: this decode worker is %d, not %d",
                                                         options_.incarnation, hello.receiver_incarnation()));
  }
  if (hello.receiver_rank() != options_.rank || hello.sender_rank() < 0 ||
      hello.sender_rank() >= std::max(hello.sender_tp(), 1)) {
    return absl::FailedPreconditionError(absl::StrFormat("rank %d of %d means rank %d; this is rank %d",
                                                         hello.sender_rank(), hello.sender_tp(), hello.receiver_rank(),
                                                         options_.rank));
  }
  if (absl::Status fit = CheckFit(hello.fingerprint(), options_.fingerprint); !fit.ok()) return fit;
  if (auto plan = PlanReshard(FromProto(hello.shards()), options_.shards); !plan.ok()) return plan.status();
  if (ChannelsFor(hello).empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("no way to move KV: the prefill worker %s and offers %s; this worker takes %s",
                        hello.host_id() == options_.host_id ? "is on the same host" : "is on another host",
                        absl::StrJoin(hello.channels(), ", "), absl::StrJoin(options_.channels, ", ")));
  }
  const auto last = last_epoch_.find({hello.sender_incarnation(), hello.sender_rank()});
  if (last != last_epoch_.end() && message.epoch() <= last->second) {
    return absl::FailedPreconditionError(
        absl::StrFormat("stale epoch %d, the last one was %d", message.epoch(), last->second));
  }
  return absl::OkStatus();
}

bool DecodeEndpoint::MayUse(const std::string& channel, const v1::SenderHello& hello) const {
  if (std::find(options_.channels.begin(), options_.channels.end(), channel) == options_.channels.end()) return false;
  const bool one_host = hello.host_id() == options_.host_id;
  if (channel == "tcp") return true;
  if (channel == "shm") return one_host;
  const kernels::DeviceLinks* const links = LinksOf(options_.kv);
  if (links == nullptr || hello.device_id().empty()) return false;
  // NCCL wants two GPUs.
  return channel == "cuda-ipc" ? one_host : channel == "nccl" && !(one_host && hello.device_id() == links->device_id());
}

// Those of the sender that may be used here, in its order.
std::vector<std::string> DecodeEndpoint::ChannelsFor(const v1::SenderHello& hello) const {
  std::vector<std::string> channels;
  for (const std::string& channel : hello.channels()) {
    if (MayUse(channel, hello)) channels.push_back(channel);
  }
  return channels;
}

// The first that can be made; RESOURCE_EXHAUSTED where one can be made later.
absl::StatusOr<DecodeEndpoint::NewChannel> DecodeEndpoint::MakeFirstChannel(const v1::SenderMessage& message) {
  const PeerRank peer{message.hello().sender_incarnation(), message.hello().sender_rank()};
  absl::StatusOr<NewChannel> made = absl::InternalError("no channel");
  for (const std::string& name : ChannelsFor(message.hello())) {
    made = MakeChannel(name, peer, message.epoch());
    if (made.ok() || absl::IsResourceExhausted(made.status())) break;
    LOG(WARNING) << "no KV over " << name << ": " << made.status().message();
  }
  return made;
}

absl::StatusOr<DecodeEndpoint::NewChannel> DecodeEndpoint::MakeChannel(const std::string& name, PeerRank peer,
                                                                       uint64_t epoch) {
  const ChannelLimits limits{options_.receiver.window, size_t(options_.receiver.max_piece_bytes)};
  ArrivalCallback on_arrival = [this, thread = thread_, peer, epoch](uint64_t sequence) {
    thread->Post([this, peer, epoch, sequence] { OnArrival(peer, epoch, sequence); });
  };
  if (name == "tcp") {
    absl::StatusOr<TcpReceiver> made = NewTcpReceiver(options_.host, limits, std::move(on_arrival));
    if (!made.ok()) return made.status();
    return NewChannel{name, std::move(made->channel), std::move(made->endpoint)};
  }
  if (name == "cuda-ipc") {
    absl::StatusOr<CudaIpcReceiver> made = NewCudaIpcReceiver(limits, ipc_rings_, std::move(on_arrival));
    if (!made.ok()) return made.status();
    return NewChannel{name, std::move(made->channel), std::move(made->endpoint)};
  }
  if (name == "nccl") {
    absl::StatusOr<NcclReceiver> made = NewNcclReceiver(options_.host, limits, nccl_rings_, std::move(on_arrival));
    if (!made.ok()) return made.status();
    return NewChannel{name, std::move(made->channel), std::move(made->endpoint)};
  }
  absl::StatusOr<ShmReceiver> made = NewShmReceiver(limits, std::move(on_arrival));
  if (!made.ok()) return made.status();
  return NewChannel{name, std::move(made->channel), std::move(made->endpoint)};
}

v1::ReceiverMessage DecodeEndpoint::MakeHello(const v1::SenderMessage& message, const std::string& channel,
                                              std::string endpoint) const {
  const v1::SenderHello& from = message.hello();
  v1::ReceiverMessage answer;
  answer.set_epoch(message.epoch());
  v1::ReceiverHello& hello = *answer.mutable_hello();
  hello.set_receiver_incarnation(options_.incarnation);
  *hello.mutable_fingerprint() = options_.fingerprint;
  hello.set_receiver_tp(int(options_.shards.size()));
  ToProto(options_.shards, *hello.mutable_shards());
  hello.set_channel(channel);
  const auto names = {message.epoch(), from.sender_incarnation(), options_.incarnation, uint64_t(from.sender_rank()),
                      uint64_t(options_.rank)};
  // It holds the secret that the bytes' connections have to show.
  hello.set_channel_endpoint(options_.key.Mask("kv endpoint", names, std::move(endpoint)));
  hello.set_auth(options_.key.Proof("kv receiver", names, hello.channel_endpoint()));
  hello.set_window_pieces(options_.receiver.window);
  hello.set_max_piece_bytes(options_.receiver.max_piece_bytes);
  return answer;
}

// The sender does not come again after a refusal, but it does after an end for a lack that may pass.
void DecodeEndpoint::Refuse(uint64_t link_id, ReceiverLink& link, uint64_t epoch, const absl::Status& why) {
  // At most once a minute: a stranger may try all the time.
  LOG_EVERY_T(WARNING, 60) << "refused a KV link: " << why.message();
  pair_of_link_[link_id] = std::nullopt;
  if (MayPass(why)) return link.Close(why);
  v1::ReceiverMessage answer;
  answer.set_epoch(epoch);
  if (!absl::IsUnauthenticated(why)) {
    answer.mutable_hello()->set_receiver_incarnation(options_.incarnation);
    *answer.mutable_hello()->mutable_fingerprint() = options_.fingerprint;
  }
  *answer.mutable_hello()->mutable_refused() = ToErrorInfo(why, v1::INCOMPATIBLE);
  link.Send(std::move(answer));
  link.Close(why);
}

void DecodeEndpoint::OnHello(uint64_t link_id, const std::shared_ptr<ReceiverLink>& link,
                             const v1::SenderMessage& message) {
  const PeerRank peer{message.hello().sender_incarnation(), message.hello().sender_rank()};
  const uint64_t epoch = message.epoch();
  if (absl::Status bad = CheckHello(message); !bad.ok()) return Refuse(link_id, *link, epoch, bad);
  absl::StatusOr<NewChannel> made = MakeFirstChannel(message);
  if (!made.ok()) return Refuse(link_id, *link, epoch, made.status());
  if (pairs_.contains(peer)) Break(peer, PeerLost("the prefill worker began a new epoch"));
  last_epoch_[peer] = epoch;
  pair_of_link_[link_id] = peer;
  Pair& pair = pairs_[peer];
  pair.id = link_id;
  pair.epoch = epoch;
  pair.sender_tp = std::max(message.hello().sender_tp(), 1);
  pair.parts =
      PartsBetween(*PlanReshard(FromProto(message.hello().shards()), options_.shards), peer.rank, options_.rank);
  pair.link = link;
  pair.machine = std::make_unique<Receiver>(epoch, options_.receiver);
  pair.channel = std::move(made->channel);
  pair.last_heard = pair.last_ping = thread_->Now();
  flows_.Up(peer, made->name);
  link->Send(MakeHello(message, made->name, std::move(made->endpoint)));
}

void DecodeEndpoint::OnLinkEnd(uint64_t link_id) {
  const auto it = pair_of_link_.find(link_id);
  if (it == pair_of_link_.end()) return;
  if (it->second.has_value()) Break(*it->second, PeerLost("the link to the prefill worker has ended"));
  pair_of_link_.erase(link_id);
}

void DecodeEndpoint::OnArrival(PeerRank peer, uint64_t epoch, uint64_t sequence) {
  const auto it = pairs_.find(peer);
  if (it == pairs_.end() || it->second.epoch != epoch) return;
  it->second.last_heard = thread_->Now();
  it->second.machine->Arrived(sequence, it->second.last_heard);
  CarryOut(peer, it->second);
}

// Ends the pair's epoch and all its leases.
void DecodeEndpoint::Break(PeerRank peer, absl::Status why) {
  const auto it = pairs_.find(peer);
  if (it == pairs_.end()) return;
  auto node = pairs_.extract(it);  // out of the table first: CarryOut below must not come back here
  Pair& pair = node.mapped();
  pair_of_link_[pair.id] = std::nullopt;
  pair.machine->Lose(why);
  CarryOut(peer, pair);
  flows_.Down(peer, thread_->Now());
  pair.link->Close(why);
}

std::vector<PeerRank> DecodeEndpoint::RanksOf(uint64_t prefill_incarnation) const {
  std::vector<PeerRank> ranks;
  for (auto it = pairs_.lower_bound({prefill_incarnation, 0});
       it != pairs_.end() && it->first.incarnation == prefill_incarnation; ++it) {
    ranks.push_back(it->first);
  }
  return ranks;
}

// The bytes of a piece that this rank of the prefill worker may send.
absl::StatusOr<int64_t> DecodeEndpoint::SizeOf(const v1::Piece& piece, PeerRank peer, int num_blocks,
                                               int first_block) const {
  if (absl::Status s = ValidatePiece(piece, options_.kv, num_blocks, first_block); !s.ok()) return s;
  const std::vector<KvShard>& parts = pairs_.at(peer).parts;
  const bool its = std::any_of(parts.begin(), parts.end(), [&](const KvShard& part) {
    return part.layer_begin <= piece.layer_begin() && piece.layer_end() <= part.layer_end &&
           part.head_begin <= piece.head_begin() && piece.head_end() <= part.head_end;
  });
  if (!its) return absl::InvalidArgumentError("piece: its layers and heads are not this rank's to send");
  return int64_t(PieceBytes(piece, options_.kv.layout));
}

void DecodeEndpoint::Expect(uint64_t lease_id, uint64_t prefill_incarnation, v1::RequestKey key,
                            std::vector<int32_t> blocks, int first_block) {
  thread_->Post(
      [this, lease_id, prefill_incarnation, key = std::move(key), blocks = std::move(blocks), first_block]() mutable {
        const int num_blocks = int(blocks.size());
        Lease& lease = leases_[lease_id];
        lease.prefill_incarnation = prefill_incarnation;
        lease.blocks = std::move(blocks);
        lease.end.lease_id = lease_id;
        const std::vector<PeerRank> ranks = RanksOf(prefill_incarnation);
        if (ranks.empty() || int(ranks.size()) != pairs_.at(ranks.front()).sender_tp) {
          return EndNow(lease_id, PeerLost("no link to the prefill worker"));
        }
        for (const PeerRank& peer : ranks) lease.open.insert(peer.rank);
        AtOpenPairs(lease_id, [&](PeerRank peer, Receiver& machine) {
          machine.Expect(
              lease_id, key,
              [this, peer, num_blocks, first_block](const v1::Piece& piece) {
                return SizeOf(piece, peer, num_blocks, first_block);
              },
              thread_->Now());
        });
      });
}

void DecodeEndpoint::Forget(uint64_t lease_id, absl::Status why) {
  thread_->Post([this, lease_id, why = std::move(why)] {
    AtOpenPairs(lease_id, [&](PeerRank, Receiver& machine) { machine.Forget(lease_id, why, thread_->Now()); });
  });
}

// What the call sets off may end the lease, so it is looked up again for each pair.
void DecodeEndpoint::AtOpenPairs(uint64_t lease_id, const std::function<void(PeerRank, Receiver&)>& call) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  for (const PeerRank& peer : RanksOf(found->second.prefill_incarnation)) {
    const auto lease = leases_.find(lease_id);
    if (lease == leases_.end()) return;
    const auto it = pairs_.find(peer);
    if (!lease->second.open.contains(peer.rank) || it == pairs_.end()) continue;
    call(peer, *it->second.machine);
    CarryOut(peer, it->second);
  }
}

// Carries out what the machine ordered, until it orders nothing more.
void DecodeEndpoint::CarryOut(PeerRank peer, Pair& pair) {
  while (true) {
    Receiver::Outbox outbox = pair.machine->Take();
    if (outbox.posts.empty() && outbox.messages.empty() && outbox.scatters.empty() && outbox.releases.empty() &&
        outbox.ends.empty()) {
      break;
    }
    for (const uint64_t sequence : outbox.releases) pair.channel->Release(sequence);
    for (const Receiver::Post& post : outbox.posts) {
      if (absl::Status s = pair.channel->PostReceive(post.sequence, size_t(post.bytes)); !s.ok()) {
        pair.machine->Abort(s);
      }
    }
    for (v1::ReceiverMessage& message : outbox.messages) pair.link->Send(std::move(message));
    for (const Receiver::Scatter& scatter : outbox.scatters) Scatter(pair, scatter);
    for (const Receiver::End& end : outbox.ends) ended_.emplace_back(peer, end);
  }
  flows_.Update(peer, pair.machine->totals(), pair.machine->busy(), thread_->Now());
  const absl::Status death = pair.machine->death();
  if (!death.ok()) Break(peer, death);  // `pair` is gone
  // Here nothing of a pair is in use any more: an end may break other pairs, and this one.
  while (!ended_.empty()) {
    const auto [rank, end] = std::move(ended_.front());
    ended_.pop_front();
    RankEnded(rank, end);
  }
}

void DecodeEndpoint::Scatter(Pair& pair, const Receiver::Scatter& scatter) {
  const absl::Status status = Land(pair, scatter);
  if (!status.ok()) LOG(ERROR) << status.message();
  pair.machine->Scattered(scatter.sequence, status, thread_->Now());
}

// Wrong bytes are in the lease's blocks then, which nobody reads: it never becomes a sequence.
absl::Status DecodeEndpoint::Land(Pair& pair, const Receiver::Scatter& scatter) {
  const absl::StatusOr<std::span<const std::byte>> view = pair.channel->View(scatter.sequence);
  if (!view.ok()) return view.status();
  Lease& lease = leases_.at(scatter.lease_id);
  const absl::StatusOr<uint64_t> sum =
      ScatterPiece(scatter.piece, options_.kv, lease.blocks, *view, pair.channel->device() != nullptr);
  if (!sum.ok()) return sum.status();
  if (*sum != scatter.checksum) {
    return absl::DataLossError(absl::StrFormat("a KV piece of lease %d has the wrong checksum", scatter.lease_id));
  }
  lease.landed = absl::Now();
  VLOG(2) << "KV piece " << scatter.sequence << " of lease " << scatter.lease_id << " has landed";
  return absl::OkStatus();
}

// With one rank. The whole ends with the last of them; where one fails the others are given up.
void DecodeEndpoint::RankEnded(PeerRank peer, const Receiver::End& end) {
  const auto it = leases_.find(end.lease_id);
  if (it == leases_.end() || it->second.open.erase(peer.rank) == 0) return;
  Lease& lease = it->second;
  const bool first_failure = lease.end.status.ok() && !end.status.ok();
  if (first_failure) lease.end.status = end.status;
  if (end.status.ok()) lease.end.commit = end.commit;
  lease.end.bytes += end.bytes;
  const absl::Duration exposed = std::max(absl::ZeroDuration(), lease.landed - lease.committed);
  flows_.Ended(peer, end.status.ok(), exposed);
  if (lease.open.empty()) {
    Receiver::End whole = std::move(lease.end);
    if (whole.status.ok()) whole.exposed = exposed;
    leases_.erase(it);
    return on_end_(whole);
  }
  if (!first_failure) return;
  AtOpenPairs(end.lease_id,
              [&](PeerRank, Receiver& machine) { machine.Forget(end.lease_id, end.status, thread_->Now()); });
}

void DecodeEndpoint::EndNow(uint64_t lease_id, const absl::Status& why) {
  leases_.erase(lease_id);
  Receiver::End end;
  end.lease_id = lease_id;
  end.status = why;
  on_end_(end);
}

// Not OK: the pair is to be broken.
absl::Status DecodeEndpoint::CheckAlive(Pair& pair, absl::Time now) {
  if (now - pair.last_heard > options_.silence_limit) return PeerLost("the prefill worker is silent");
  // One tick later, so that a peer that aborted the pair is heard first: it says why.
  if (absl::Status s = pair.channel->status(); !s.ok() && ++pair.bad_channel_ticks > 1) return s;
  if (now - pair.last_ping > options_.ping_interval) {
    v1::ReceiverMessage ping;
    ping.set_epoch(pair.epoch);
    ping.mutable_ping()->set_token(uint64_t(absl::ToUnixNanos(now)));
    pair.link->Send(std::move(ping));
    pair.last_ping = now;
  }
  return absl::OkStatus();
}

void DecodeEndpoint::Tick(absl::Time now) {
  std::vector<PeerRank> all;
  for (const auto& [peer, pair] : pairs_) all.push_back(peer);
  for (const PeerRank& peer : all) {
    const auto it = pairs_.find(peer);
    if (it == pairs_.end()) continue;
    if (absl::Status why = CheckAlive(it->second, now); !why.ok()) {
      Break(peer, why);
      continue;
    }
    it->second.machine->Tick(now);
    CarryOut(peer, it->second);
  }
  if (on_flows_ && flows_.TakeChanged()) on_flows_(flows_.flows());
}

}  // namespace sluice::kvtransfer
