#include "kvtransfer/prefill_endpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "grpcpp/create_channel.h"
#include "kvtransfer/error_info.h"
#include "kvtransfer/fingerprint.h"
#include "kvtransfer/piece_split.h"
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

}  // namespace

PrefillEndpoint::PrefillEndpoint(Options options, Callbacks callbacks)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      thread_(std::make_shared<SerialThread>(kTick, [this](absl::Time now) { Tick(now); })) {}

PrefillEndpoint::~PrefillEndpoint() {
  SetPeers({});
  {
    absl::MutexLock lock(&links_mutex_);
    links_mutex_.Await(absl::Condition(this, &PrefillEndpoint::NoLinks));
  }
  thread_->Stop();
}

void PrefillEndpoint::SetPeers(std::map<uint64_t, std::string> address_by_incarnation) {
  thread_->Post([this, peers = std::move(address_by_incarnation)] {
    std::vector<uint64_t> gone;
    for (const auto& [incarnation, pair] : pairs_) {
      if (!peers.contains(incarnation)) gone.push_back(incarnation);
    }
    for (const uint64_t incarnation : gone) {
      Break(incarnation, pairs_.at(incarnation), PeerLost("the decode worker has left"));
      pairs_.erase(incarnation);
    }
    if (peers.empty()) EndFarewells(absl::InfiniteFuture());
    for (const auto& [incarnation, address] : peers) {
      const auto [it, fresh] = pairs_.try_emplace(incarnation);
      it->second.address = address;
      if (fresh) Dial(incarnation, it->second);
    }
  });
}

void PrefillEndpoint::Dial(uint64_t incarnation, Pair& pair) {
  const uint64_t epoch = pair.epoch = ++last_epoch_[incarnation];
  pair.state = PairState::kConnecting;
  pair.last_heard = pair.last_ping = thread_->Now();
  if (pair.dial == nullptr) {
    pair.dial = grpc::CreateChannel(pair.address, grpc::InsecureChannelCredentials());
  }
  {
    absl::MutexLock lock(&links_mutex_);
    links_[{incarnation, epoch}] = pair.dial;
  }
  const auto post = [this, thread = thread_](auto task) { thread->Post(std::move(task)); };
  pair.link = OpenLink(
      pair.dial, {[this, post, incarnation, epoch](v1::ReceiverMessage message) {
                    post([this, incarnation, epoch, m = std::move(message)] { OnMessage(incarnation, epoch, m); });
                  },
                  [this, post, incarnation, epoch](const absl::Status& why) {
                    post([this, incarnation, epoch, why] { OnLinkEnd(incarnation, epoch, why); });
                  }});
  v1::SenderMessage message;
  message.set_epoch(epoch);
  v1::SenderHello& hello = *message.mutable_hello();
  hello.set_sender_incarnation(options_.incarnation);
  hello.set_receiver_incarnation(incarnation);
  *hello.mutable_fingerprint() = options_.fingerprint;
  hello.set_sender_tp(1);
  for (const std::string& channel : options_.channels) hello.add_channels(channel);
  hello.set_host_id(options_.host_id);
  pair.link->Send(std::move(message));
}

void PrefillEndpoint::OnMessage(uint64_t incarnation, uint64_t epoch, const v1::ReceiverMessage& message) {
  const auto it = pairs_.find(incarnation);
  if (it == pairs_.end() || it->second.epoch != epoch || it->second.link == nullptr) return;
  Pair& pair = it->second;
  pair.last_heard = thread_->Now();
  if (message.has_hello()) return OnHello(incarnation, pair, message.hello());
  if (pair.machine == nullptr) return;
  pair.machine->OnMessage(message, pair.last_heard);
  CarryOut(incarnation, pair);
}

void PrefillEndpoint::OnHello(uint64_t incarnation, Pair& pair, const v1::ReceiverHello& hello) {
  if (pair.machine != nullptr) return Break(incarnation, pair, absl::InternalError("a second hello"));
  absl::Status refused = FromErrorInfo(hello.refused());
  if (refused.ok() && hello.receiver_incarnation() != incarnation) {
    refused = absl::FailedPreconditionError("another process answers at the decode worker's address");
  }
  if (refused.ok()) refused = CheckFit(options_.fingerprint, hello.fingerprint());
  if (refused.ok() && int64_t(options_.kv.layout.block_bytes()) > hello.max_piece_bytes()) {
    refused =
        absl::FailedPreconditionError(absl::StrCat("one block of one layer has ", options_.kv.layout.block_bytes(),
                                                   " bytes, the peer takes ", hello.max_piece_bytes()));
  }
  if (!refused.ok()) {
    LOG(WARNING) << "decode worker " << pair.address << " refuses to pair: " << refused.message();
    Break(incarnation, pair, refused);
    pair.state = PairState::kRefused;
    return callbacks_.on_pair(incarnation, pair.state, refused);
  }
  absl::StatusOr<std::unique_ptr<SendChannel>> channel =
      hello.channel() == "tcp" ? ConnectTcpSender(HostOf(pair.address), hello.channel_endpoint(), kChannelTimeout)
                               : ConnectShmSender(hello.channel_endpoint(), kChannelTimeout);
  if (!channel.ok()) return Break(incarnation, pair, channel.status());
  pair.channel = options_.wrap_channel ? options_.wrap_channel(std::move(*channel)) : std::move(*channel);
  pair.machine = std::make_unique<Sender>(pair.epoch, options_.sender);
  pair.max_piece_bytes = hello.max_piece_bytes();
  pair.bad_channel_ticks = 0;
  pair.state = PairState::kUp;
  pair.backoff = absl::Milliseconds(50);
  LOG(INFO) << "paired with decode worker " << pair.address << " over " << hello.channel() << ", epoch " << pair.epoch;
  callbacks_.on_pair(incarnation, pair.state, absl::OkStatus());
}

void PrefillEndpoint::OnLinkEnd(uint64_t incarnation, uint64_t epoch, const absl::Status& why) {
  const auto it = pairs_.find(incarnation);
  const bool current = it != pairs_.end() && it->second.epoch == epoch && it->second.link != nullptr;
  {
    absl::MutexLock lock(&links_mutex_);
    links_.erase({incarnation, epoch});
  }
  if (!current) return;
  // A decode worker that ends a pair for a reason says so; another code is that reason's.
  const bool lost = why.ok() || absl::IsUnavailable(why) || absl::IsCancelled(why);
  Break(incarnation, it->second, lost ? PeerLost("the link to the decode worker has ended") : why);
}

// Ends the pair's epoch and all its transfers; the next attempt comes after the backoff.
void PrefillEndpoint::Break(uint64_t incarnation, Pair& pair, absl::Status why) {
  MarkDown(incarnation, pair, why);
  const bool aborted = pair.machine != nullptr && pair.machine->dead();
  if (pair.machine != nullptr) {
    pair.breaking = true;  // CarryOut must not come back here
    pair.machine->Lose(why);
    CarryOut(incarnation, pair);
    pair.breaking = false;
  }
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
void PrefillEndpoint::MarkDown(uint64_t incarnation, Pair& pair, const absl::Status& why) {
  if (pair.state != PairState::kUp) return;
  pair.state = PairState::kConnecting;
  LOG(WARNING) << "lost the pair with decode worker " << pair.address << ": " << why.message();
  callbacks_.on_pair(incarnation, pair.state, why);
}

void PrefillEndpoint::Open(TransferId id, v1::RequestKey key, std::vector<int32_t> blocks) {
  thread_->Post([this, id, key = std::move(key), blocks = std::move(blocks)]() mutable {
    transfers_[id] = std::move(blocks);
    const auto it = pairs_.find(id.decode_incarnation);
    if (it == pairs_.end() || it->second.machine == nullptr) {
      return EndNow(id, PeerLost("no link to the decode worker"));
    }
    it->second.machine->Open(id.lease_id, key, thread_->Now());
    CarryOut(id.decode_incarnation, it->second);
  });
}

void PrefillEndpoint::AddBlocks(TransferId id, int begin, int end) {
  thread_->Post([this, id, begin, end] {
    const auto it = pairs_.find(id.decode_incarnation);
    if (!transfers_.contains(id) || it == pairs_.end() || it->second.machine == nullptr) return;
    Pair& pair = it->second;
    VLOG(2) << "KV blocks [" << begin << ", " << end << ") of lease " << id.lease_id << " are final";
    for (const v1::Piece& piece :
         SplitBlocks(options_.kv.layout, options_.kv.first_head, begin, end, pair.max_piece_bytes)) {
      pair.machine->AddPiece(id.lease_id, piece, int64_t(PieceBytes(piece, options_.kv.layout)), thread_->Now());
    }
    CarryOut(id.decode_incarnation, pair);
  });
}

void PrefillEndpoint::Commit(TransferId id, v1::Commit commit) {
  thread_->Post([this, id, commit = std::move(commit)]() mutable {
    const auto it = pairs_.find(id.decode_incarnation);
    if (!transfers_.contains(id) || it == pairs_.end() || it->second.machine == nullptr) return;
    it->second.machine->Commit(id.lease_id, std::move(commit), thread_->Now());
    CarryOut(id.decode_incarnation, it->second);
  });
}

void PrefillEndpoint::Cancel(TransferId id, absl::Status why) {
  thread_->Post([this, id, why = std::move(why)] {
    const auto it = pairs_.find(id.decode_incarnation);
    if (!transfers_.contains(id) || it == pairs_.end() || it->second.machine == nullptr) return;
    it->second.machine->Cancel(id.lease_id, why, thread_->Now());
    CarryOut(id.decode_incarnation, it->second);
  });
}

// Carries out what the machine ordered, until it orders nothing more.
void PrefillEndpoint::CarryOut(uint64_t incarnation, Pair& pair) {
  while (true) {
    Sender::Outbox outbox = pair.machine->Take();
    if (outbox.messages.empty() && outbox.gathers.empty() && outbox.acks.empty() && outbox.ends.empty()) break;
    if (pair.machine->dead()) MarkDown(incarnation, pair, pair.machine->death());
    for (v1::SenderMessage& message : outbox.messages) {
      if (pair.link != nullptr) pair.link->Send(std::move(message));
    }
    for (const Sender::Gather& gather : outbox.gathers) Gather(pair, gather, incarnation);
    for (const Sender::Ack& ack : outbox.acks) callbacks_.on_progress({incarnation, ack.lease_id}, ack.bytes_acked);
    for (const Sender::End& end : outbox.ends) {
      const TransferId id{incarnation, end.lease_id};
      if (transfers_.erase(id) > 0) callbacks_.on_end(id, end);
    }
  }
  if (pair.machine->dead() && !pair.breaking) Break(incarnation, pair, pair.machine->death());
}

void PrefillEndpoint::Gather(Pair& pair, const Sender::Gather& gather, uint64_t incarnation) {
  if (pair.machine->dead()) return;
  const absl::StatusOr<std::span<std::byte>> buffer = pair.channel->Buffer(gather.sequence, size_t(gather.bytes));
  if (!buffer.ok()) return pair.machine->Abort(buffer.status());
  uint64_t checksum = 0;
  if (!gather.dropped) {
    checksum = GatherPiece(gather.piece, options_.kv, transfers_.at({incarnation, gather.lease_id}), *buffer);
  }
  if (absl::Status s = pair.channel->Send(gather.sequence); !s.ok()) return pair.machine->Abort(s);
  VLOG(2) << "KV piece " << gather.sequence << " of lease " << gather.lease_id << " is sent, " << gather.bytes
          << " bytes";
  pair.machine->Sent(gather.sequence, checksum, thread_->Now());
}

void PrefillEndpoint::EndNow(TransferId id, const absl::Status& why) {
  transfers_.erase(id);
  Sender::End end;
  end.lease_id = id.lease_id;
  end.status = why;
  callbacks_.on_end(id, end);
}

void PrefillEndpoint::Tick(absl::Time now) {
  EndFarewells(now);
  for (auto& [incarnation, pair] : pairs_) {
    if (pair.state == PairState::kRefused) continue;
    if (pair.link == nullptr) {
      if (now >= pair.retry_at) Dial(incarnation, pair);
      continue;
    }
    if (now - pair.last_heard > options_.silence_limit) {
      Break(incarnation, pair, PeerLost("the decode worker is silent"));
      continue;
    }
    if (pair.machine == nullptr) continue;
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
    CarryOut(incarnation, pair);
  }
}

}  // namespace sluice::kvtransfer
