// One epoch of a pair of ranks in one process, without gRPC: a Sender and a Receiver, each on a thread of its own as in
// the endpoints, messages posted from one to the other, the bytes over a loopback channel.
//
// The pair does not come back once it is dead: what is open then ends with an error, and so does what is opened later;
// the owner makes another with the next epoch. Callbacks come on the pair's threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/checksum.h"
#include "kvtransfer/fault_channel.h"
#include "kvtransfer/loopback_channel.h"
#include "kvtransfer/piece_copy.h"
#include "kvtransfer/piece_split.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/serial_thread.h"

namespace sluice {

class InMemoryPair {
 public:
  struct Callbacks {
    std::function<void(const kvtransfer::Sender::End&)> on_sent;
    std::function<void(const kvtransfer::Receiver::End&)> on_received;
  };

  InMemoryPair(uint64_t epoch, kvtransfer::PoolView from, kvtransfer::PoolView to,
               std::shared_ptr<kvtransfer::FaultState> faults, Callbacks callbacks)
      : from_(std::move(from)),
        to_(std::move(to)),
        callbacks_(std::move(callbacks)),
        sender_(epoch, {}),
        receiver_(epoch, Options()),
        send_thread_(kTick,
                     [this](absl::Time now) { OnSender([now](kvtransfer::Sender& sender) { sender.Tick(now); }); }),
        receive_thread_(kTick, [this](absl::Time now) {
          OnReceiver([now](kvtransfer::Receiver& receiver) { receiver.Tick(now); });
        }) {
    const kvtransfer::ChannelLimits limits{Options().window, size_t(Options().max_piece_bytes)};
    auto channel = kvtransfer::NewLoopbackChannel(limits, [this](uint64_t sequence) {
      receive_thread_.Post([this, sequence] {
        OnReceiver([&](kvtransfer::Receiver& receiver) { receiver.Arrived(sequence, receive_thread_.Now()); });
      });
    });
    send_thread_.Post([this, c = std::make_shared<std::unique_ptr<kvtransfer::SendChannel>>(kvtransfer::WithFaults(
                                 std::move(channel.sender), std::move(faults)))] { send_channel_ = std::move(*c); });
    receive_thread_.Post([this, c = std::make_shared<std::unique_ptr<kvtransfer::ReceiveChannel>>(
                                    std::move(channel.receiver))] { receive_channel_ = std::move(*c); });
  }
  ~InMemoryPair() {
    const absl::Status over = absl::UnavailableError("the pair is over");
    send_thread_.Post([this, over] { OnSender([&](kvtransfer::Sender& sender) { sender.Lose(over); }); });
    send_thread_.Stop();
    receive_thread_.Post([this, over] { OnReceiver([&](kvtransfer::Receiver& receiver) { receiver.Lose(over); }); });
    receive_thread_.Stop();
  }

  // The prefill side; the meaning is PrefillEndpoint's.
  void Open(uint64_t lease, std::vector<int32_t> blocks) {
    send_thread_.Post([this, lease, blocks = std::move(blocks)]() mutable {
      source_[lease] = std::move(blocks);
      if (sender_.dead()) return EndSent({.lease_id = lease, .status = sender_.death()});
      OnSender([&](kvtransfer::Sender& sender) { sender.Open(lease, {}, send_thread_.Now()); });
    });
  }
  void AddBlocks(uint64_t lease, int begin, int end) {
    send_thread_.Post([this, lease, begin, end] {
      if (!source_.contains(lease)) return;
      for (const v1::Piece& piece : kvtransfer::SplitBlocks(from_.layout, kvtransfer::WholeShard(from_), begin, end,
                                                            Options().max_piece_bytes)) {
        const auto bytes = int64_t(kvtransfer::PieceBytes(piece, from_.layout));
        OnSender([&](kvtransfer::Sender& sender) { sender.AddPiece(lease, piece, bytes, send_thread_.Now()); });
      }
    });
  }
  void Commit(uint64_t lease, v1::Commit commit) {
    send_thread_.Post([this, lease, commit = std::move(commit)] {
      if (!source_.contains(lease)) return;
      OnSender([&](kvtransfer::Sender& sender) { sender.Commit(lease, commit, send_thread_.Now()); });
    });
  }
  void Cancel(uint64_t lease) {
    send_thread_.Post([this, lease] {
      if (!source_.contains(lease)) return;
      OnSender([&](kvtransfer::Sender& sender) {
        sender.Cancel(lease, absl::CancelledError("client"), send_thread_.Now());
      });
    });
  }

  // The decode side; the meaning is DecodeEndpoint's.
  void Expect(uint64_t lease, std::vector<int32_t> blocks, int first_block) {
    receive_thread_.Post([this, lease, blocks = std::move(blocks), first_block]() mutable {
      const int count = int(blocks.size());
      target_[lease] = std::move(blocks);
      if (receiver_.dead()) return EndReceived({.lease_id = lease, .status = receiver_.death()});
      const auto size = [this, count, first_block](const v1::Piece& piece) -> absl::StatusOr<int64_t> {
        if (absl::Status s = ValidatePiece(piece, to_, count, first_block); !s.ok()) return s;
        return int64_t(kvtransfer::PieceBytes(piece, to_.layout));
      };
      OnReceiver([&](kvtransfer::Receiver& receiver) { receiver.Expect(lease, {}, size, receive_thread_.Now()); });
    });
  }
  void Forget(uint64_t lease) {
    receive_thread_.Post([this, lease] {
      if (!target_.contains(lease)) return;
      OnReceiver([&](kvtransfer::Receiver& receiver) {
        receiver.Forget(lease, absl::CancelledError("client"), receive_thread_.Now());
      });
    });
  }

 private:
  static constexpr absl::Duration kTick = absl::Milliseconds(20);
  static kvtransfer::Receiver::Options Options() {
    kvtransfer::Receiver::Options options;
    options.max_piece_bytes = 8192;  // many pieces of a tiny model
    return options;
  }

  // On the sender's thread: something happens to the machine, then its orders are carried out.
  void OnSender(const std::function<void(kvtransfer::Sender&)>& event) {
    event(sender_);
    for (;;) {
      kvtransfer::Sender::Outbox outbox = sender_.Take();
      if (outbox.messages.empty() && outbox.gathers.empty() && outbox.ends.empty()) return;
      for (v1::SenderMessage& message : outbox.messages) {
        receive_thread_.Post([this, m = std::move(message)] {
          OnReceiver([&](kvtransfer::Receiver& receiver) { receiver.OnMessage(m, receive_thread_.Now()); });
        });
      }
      for (const auto& gather : outbox.gathers) Gather(gather);
      for (const auto& end : outbox.ends) EndSent(end);
    }
  }
  void Gather(const kvtransfer::Sender::Gather& gather) {
    if (sender_.dead()) return;
    const auto buffer = send_channel_->Buffer(gather.sequence, size_t(gather.bytes));
    if (!buffer.ok()) return sender_.Abort(buffer.status());
    absl::StatusOr<uint64_t> checksum = 0;
    if (!gather.dropped) checksum = GatherPiece(gather.piece, from_, source_.at(gather.lease_id), *buffer);
    if (!checksum.ok()) return sender_.Abort(checksum.status());
    if (absl::Status s = send_channel_->Send(gather.sequence); !s.ok()) return sender_.Abort(s);
    sender_.Sent(gather.sequence, *checksum, send_thread_.Now());
  }
  void EndSent(const kvtransfer::Sender::End& end) {
    if (source_.erase(end.lease_id) > 0) callbacks_.on_sent(end);
  }

  void OnReceiver(const std::function<void(kvtransfer::Receiver&)>& event) {
    event(receiver_);
    for (;;) {
      kvtransfer::Receiver::Outbox outbox = receiver_.Take();
      if (outbox.posts.empty() && outbox.messages.empty() && outbox.scatters.empty() && outbox.releases.empty() &&
          outbox.ends.empty()) {
        return;
      }
      for (const uint64_t sequence : outbox.releases) receive_channel_->Release(sequence);
      for (const auto& post : outbox.posts) {
        if (absl::Status s = receive_channel_->PostReceive(post.sequence, size_t(post.bytes)); !s.ok()) {
          receiver_.Abort(s);
        }
      }
      for (v1::ReceiverMessage& message : outbox.messages) {
        send_thread_.Post([this, m = std::move(message)] {
          OnSender([&](kvtransfer::Sender& sender) { sender.OnMessage(m, send_thread_.Now()); });
        });
      }
      for (const auto& scatter : outbox.scatters) Scatter(scatter);
      for (const auto& end : outbox.ends) EndReceived(end);
    }
  }
  void Scatter(const kvtransfer::Receiver::Scatter& scatter) {
    absl::Status status;
    if (const auto view = receive_channel_->View(scatter.sequence); !view.ok()) {
      status = view.status();
    } else {
      const absl::StatusOr<uint64_t> sum = ScatterPiece(scatter.piece, to_, target_.at(scatter.lease_id), *view);
      if (!sum.ok()) status = sum.status();
      if (sum.ok() && *sum != scatter.checksum) status = absl::DataLossError("wrong checksum");
    }
    receiver_.Scattered(scatter.sequence, status, receive_thread_.Now());
  }
  void EndReceived(const kvtransfer::Receiver::End& end) {
    if (target_.erase(end.lease_id) > 0) callbacks_.on_received(end);
  }

  const kvtransfer::PoolView from_, to_;
  const Callbacks callbacks_;
  // Of the sender's thread.
  kvtransfer::Sender sender_;
  std::unique_ptr<kvtransfer::SendChannel> send_channel_;
  std::map<uint64_t, std::vector<int32_t>> source_;  // open transfers: their blocks
  // Of the receiver's thread.
  kvtransfer::Receiver receiver_;
  std::unique_ptr<kvtransfer::ReceiveChannel> receive_channel_;
  std::map<uint64_t, std::vector<int32_t>> target_;
  // Last: everything above is there before they run.
  kvtransfer::SerialThread send_thread_, receive_thread_;
};

}  // namespace sluice
