#include "kvtransfer/decode_endpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "kvtransfer/error_info.h"
#include "kvtransfer/fingerprint.h"
#include "kvtransfer/shm_channel.h"
#include "kvtransfer/tcp_channel.h"

namespace sluice::kvtransfer {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);

}  // namespace

DecodeEndpoint::DecodeEndpoint(Options options, OnEnd on_end)
    : options_(std::move(options)),
      on_end_(std::move(on_end)),
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
  if (known->second == 0) return;  // it crossed the end of the pair
  Pair& pair = pairs_.at(known->second);
  pair.last_heard = thread_->Now();
  if (message.has_commit()) {
    const auto lease = leases_.find(message.commit().lease_id());
    if (lease != leases_.end()) lease->second.committed = received;
  }
  pair.machine->OnMessage(message, heard);
  CarryOut(known->second, pair);
}

absl::Status DecodeEndpoint::CheckHello(const v1::SenderMessage& message) const {
  if (!message.has_hello()) return absl::FailedPreconditionError("the first message of a link must be its hello");
  const v1::SenderHello& hello = message.hello();
  if (hello.receiver_incarnation() != options_.incarnation) {
    return absl::FailedPreconditionError(absl::StrFormat("stale incarnation: this decode worker is %d, not %d",
                                                         options_.incarnation, hello.receiver_incarnation()));
  }
  if (absl::Status fit = CheckFit(hello.fingerprint(), options_.fingerprint); !fit.ok()) return fit;
  if (ChannelFor(hello).empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("no way to move KV: the prefill worker %s and offers %s; this worker takes %s",
                        hello.host_id() == options_.host_id ? "is on the same host" : "is on another host",
                        absl::StrJoin(hello.channels(), ", "), absl::StrJoin(options_.channels, ", ")));
  }
  const auto last = last_epoch_.find(hello.sender_incarnation());
  if (last != last_epoch_.end() && message.epoch() <= last->second) {
    return absl::FailedPreconditionError(
        absl::StrFormat("stale epoch %d, the last one was %d", message.epoch(), last->second));
  }
  return absl::OkStatus();
}

// The first of the sender's channels that may be used here; empty: none.
std::string DecodeEndpoint::ChannelFor(const v1::SenderHello& hello) const {
  for (const std::string& channel : hello.channels()) {
    const bool known = channel == "tcp" || (channel == "shm" && hello.host_id() == options_.host_id);
    if (known && std::find(options_.channels.begin(), options_.channels.end(), channel) != options_.channels.end()) {
      return channel;
    }
  }
  return "";
}

absl::StatusOr<DecodeEndpoint::NewChannel> DecodeEndpoint::MakeChannel(const std::string& name, uint64_t prefill,
                                                                       uint64_t epoch) {
  const ChannelLimits limits{options_.receiver.window, size_t(options_.receiver.max_piece_bytes)};
  ArrivalCallback on_arrival = [this, thread = thread_, prefill, epoch](uint64_t sequence) {
    thread->Post([this, prefill, epoch, sequence] { OnArrival(prefill, epoch, sequence); });
  };
  if (name == "tcp") {
    absl::StatusOr<TcpReceiver> made = NewTcpReceiver(options_.host, limits, std::move(on_arrival));
    if (!made.ok()) return made.status();
    return NewChannel{std::move(made->channel), std::move(made->endpoint)};
  }
  absl::StatusOr<ShmReceiver> made = NewShmReceiver(limits, std::move(on_arrival));
  if (!made.ok()) return made.status();
  return NewChannel{std::move(made->channel), std::move(made->endpoint)};
}

void DecodeEndpoint::OnHello(uint64_t link_id, const std::shared_ptr<ReceiverLink>& link,
                             const v1::SenderMessage& message) {
  v1::ReceiverMessage answer;
  answer.set_epoch(message.epoch());
  v1::ReceiverHello& hello = *answer.mutable_hello();
  hello.set_receiver_incarnation(options_.incarnation);
  *hello.mutable_fingerprint() = options_.fingerprint;
  const uint64_t prefill = message.hello().sender_incarnation();
  const uint64_t epoch = message.epoch();

  absl::Status bad = CheckHello(message);
  const std::string channel = ChannelFor(message.hello());
  NewChannel made;
  if (bad.ok()) {
    absl::StatusOr<NewChannel> opened = MakeChannel(channel, prefill, epoch);
    bad = opened.status();
    if (opened.ok()) made = *std::move(opened);
  }
  if (!bad.ok()) {
    LOG(WARNING) << "refused a KV link: " << bad.message();
    *hello.mutable_refused() = ToErrorInfo(bad, v1::INCOMPATIBLE);
    link->Send(std::move(answer));
    pair_of_link_[link_id] = 0;
    return link->Close(bad);
  }
  if (pairs_.contains(prefill)) Break(prefill, PeerLost("the prefill worker began a new epoch"));
  last_epoch_[prefill] = epoch;
  pair_of_link_[link_id] = prefill;
  Pair& pair = pairs_[prefill];
  pair.id = link_id;
  pair.epoch = epoch;
  pair.link = link;
  pair.machine = std::make_unique<Receiver>(epoch, options_.receiver);
  pair.channel = std::move(made.channel);
  pair.last_heard = pair.last_ping = thread_->Now();
  hello.set_receiver_tp(1);
  hello.set_channel(channel);
  hello.set_channel_endpoint(made.endpoint);
  hello.set_window_pieces(options_.receiver.window);
  hello.set_max_piece_bytes(options_.receiver.max_piece_bytes);
  link->Send(std::move(answer));
}

void DecodeEndpoint::OnLinkEnd(uint64_t link_id) {
  const auto it = pair_of_link_.find(link_id);
  if (it == pair_of_link_.end()) return;
  Break(it->second, PeerLost("the link to the prefill worker has ended"));
  pair_of_link_.erase(link_id);
}

void DecodeEndpoint::OnArrival(uint64_t prefill_incarnation, uint64_t epoch, uint64_t sequence) {
  const auto it = pairs_.find(prefill_incarnation);
  if (it == pairs_.end() || it->second.epoch != epoch) return;
  it->second.last_heard = thread_->Now();
  it->second.machine->Arrived(sequence, it->second.last_heard);
  CarryOut(prefill_incarnation, it->second);
}

// Ends the pair's epoch and all its leases.
void DecodeEndpoint::Break(uint64_t prefill_incarnation, absl::Status why) {
  const auto it = pairs_.find(prefill_incarnation);
  if (it == pairs_.end()) return;
  auto node = pairs_.extract(it);  // out of the table first: CarryOut below must not come back here
  Pair& pair = node.mapped();
  pair_of_link_[pair.id] = 0;
  pair.machine->Lose(why);
  CarryOut(prefill_incarnation, pair);
  pair.link->Close(why);
}

void DecodeEndpoint::Expect(uint64_t lease_id, uint64_t prefill_incarnation, v1::RequestKey key,
                            std::vector<int32_t> blocks, int first_block) {
  thread_->Post(
      [this, lease_id, prefill_incarnation, key = std::move(key), blocks = std::move(blocks), first_block]() mutable {
        const auto it = pairs_.find(prefill_incarnation);
        leases_[lease_id] = {prefill_incarnation, std::move(blocks)};
        if (it == pairs_.end()) return EndNow(lease_id, PeerLost("no link to the prefill worker"));
        const int num_blocks = int(leases_.at(lease_id).blocks.size());
        it->second.machine->Expect(
            lease_id, key,
            [this, num_blocks, first_block](const v1::Piece& piece) -> absl::StatusOr<int64_t> {
              if (absl::Status s = ValidatePiece(piece, options_.kv, num_blocks, first_block); !s.ok()) return s;
              return int64_t(PieceBytes(piece, options_.kv.layout));
            },
            thread_->Now());
        CarryOut(prefill_incarnation, it->second);
      });
}

void DecodeEndpoint::Forget(uint64_t lease_id, absl::Status why) {
  thread_->Post([this, lease_id, why = std::move(why)] {
    const auto lease = leases_.find(lease_id);
    if (lease == leases_.end()) return;
    const auto it = pairs_.find(lease->second.prefill_incarnation);
    if (it == pairs_.end()) return EndNow(lease_id, why);
    it->second.machine->Forget(lease_id, why, thread_->Now());
    CarryOut(it->first, it->second);
  });
}

// Carries out what the machine ordered, until it orders nothing more.
void DecodeEndpoint::CarryOut(uint64_t prefill_incarnation, Pair& pair) {
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
    for (Receiver::End& end : outbox.ends) {
      const Lease lease = leases_.at(end.lease_id);
      leases_.erase(end.lease_id);
      if (end.status.ok()) end.exposed = std::max(absl::ZeroDuration(), lease.landed - lease.committed);
      on_end_(end);
    }
  }
  if (pair.machine->dead()) Break(prefill_incarnation, pair.machine->death());
}

void DecodeEndpoint::Scatter(Pair& pair, const Receiver::Scatter& scatter) {
  absl::Status status;
  if (const absl::StatusOr<std::span<const std::byte>> view = pair.channel->View(scatter.sequence); !view.ok()) {
    status = view.status();
  } else if (Lease& lease = leases_.at(scatter.lease_id);
             ScatterPiece(scatter.piece, options_.kv, lease.blocks, *view) != scatter.checksum) {
    // Wrong bytes are in the lease's blocks now, which nobody reads: it never becomes a sequence.
    status = absl::DataLossError(absl::StrFormat("a KV piece of lease %d has the wrong checksum", scatter.lease_id));
    LOG(ERROR) << status.message();
  } else {
    lease.landed = absl::Now();
    VLOG(2) << "KV piece " << scatter.sequence << " of lease " << scatter.lease_id << " has landed";
  }
  pair.machine->Scattered(scatter.sequence, status, thread_->Now());
}

void DecodeEndpoint::EndNow(uint64_t lease_id, const absl::Status& why) {
  leases_.erase(lease_id);
  Receiver::End end;
  end.lease_id = lease_id;
  end.status = why;
  on_end_(end);
}

void DecodeEndpoint::Tick(absl::Time now) {
  std::vector<std::pair<uint64_t, absl::Status>> broken;
  for (auto& [incarnation, pair] : pairs_) {
    if (now - pair.last_heard > options_.silence_limit) {
      broken.emplace_back(incarnation, PeerLost("the prefill worker is silent"));
    } else if (absl::Status s = pair.channel->status(); !s.ok() && ++pair.bad_channel_ticks > 1) {
      // One tick later, so that a peer that aborted the pair is heard first: it says why.
      broken.emplace_back(incarnation, s);
    } else if (now - pair.last_ping > options_.ping_interval) {
      v1::ReceiverMessage ping;
      ping.set_epoch(pair.epoch);
      ping.mutable_ping()->set_token(uint64_t(absl::ToUnixNanos(now)));
      pair.link->Send(std::move(ping));
      pair.last_ping = now;
    }
  }
  for (const auto& [incarnation, why] : broken) Break(incarnation, why);
  std::vector<uint64_t> all;
  for (const auto& [incarnation, pair] : pairs_) all.push_back(incarnation);
  for (const uint64_t incarnation : all) {
    const auto it = pairs_.find(incarnation);
    if (it == pairs_.end()) continue;
    it->second.machine->Tick(now);
    CarryOut(incarnation, it->second);
  }
}

}  // namespace sluice::kvtransfer
