// The prefill side of one pair of ranks, as a pure state machine: messages and time in, messages and orders out. No
// threads, clock, channel or memory; the owner carries out the orders (gather, send on the channel) and reports back.
//
// Promises:
//  - Every granted piece is sent, in grant order, cancelled or not (then as dropped bytes), so the channel never loses
//    step. Cancelling stops future grants only.
//  - Each transfer ends exactly once, by an End: the source blocks stay pinned until then. A cancelled one ends as soon
//    as no gather of it is under way, whatever the peer still owes: nothing reads its blocks after that.
//  - Anything abnormal (a grant out of order, an acknowledgement of what was not sent, silence for too long) aborts the
//    pair: one Abort goes out, every transfer ends with the error, and the machine is dead from then on.
//
// One instance lives for one epoch. Messages of another epoch are dropped and counted.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtransfer/flow_book.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

class Sender {
 public:
  struct Options {
    // Without any progress of a transfer for this long while the peer owes us something, the pair is aborted.
    absl::Duration progress_timeout = absl::Seconds(10);
  };

  // Copy the piece into the channel's buffer of `sequence` (unless dropped), send it, then call Sent(): the source is
  // not read any more by then.
  struct Gather {
    uint64_t sequence = 0;
    uint64_t lease_id = 0;
    v1::Piece piece;
    int64_t bytes = 0;
    bool dropped = false;
  };

  // The receiver has this much of the transfer.
  struct Ack {
    uint64_t lease_id = 0;
    int64_t bytes_acked = 0;
  };

  struct End {
    uint64_t lease_id = 0;
    absl::Status status;  // OK: committed at the receiver
    int64_t bytes_acked = 0;
    int pieces_acked = 0;
    absl::Time committed_at;  // when Commit() was called; InfinitePast before that
    absl::Time last_ack;
  };

  // What the owner has to do, in order. Taken by Take(), empty afterwards.
  struct Outbox {
    std::vector<v1::SenderMessage> messages;
    std::vector<Gather> gathers;
    std::vector<Ack> acks;
    std::vector<End> ends;
  };

  Sender(uint64_t epoch, const Options& options) : epoch_(epoch), options_(options) {}

  // REQUIRES: the lease id is new to this instance.
  void Open(uint64_t lease_id, const v1::RequestKey& key, absl::Time now);

  // A piece whose KV is final. No-op for a transfer that has ended or was cancelled.
  void AddPiece(uint64_t lease_id, const v1::Piece& piece, int64_t bytes, absl::Time now);

  // All pieces were added. lease_id, key and num_pieces of `commit` are filled in here.
  void Commit(uint64_t lease_id, v1::Commit commit, absl::Time now);

  void Cancel(uint64_t lease_id, const absl::Status& why, absl::Time now);

  void Sent(uint64_t sequence, uint64_t checksum, absl::Time now);

  void OnMessage(const v1::ReceiverMessage& message, absl::Time now);

  // The link or the channel is gone.
  void Lose(const absl::Status& why);

  // The pair cannot go on, by what this side has found: Lose, and the peer is told why.
  void Abort(const absl::Status& why);

  void Tick(absl::Time now);

  Outbox Take();

  bool dead() const { return !death_.ok(); }
  const absl::Status& death() const { return death_; }
  uint64_t epoch() const { return epoch_; }
  const EpochTotals& totals() const { return totals_; }
  bool busy() const { return !in_flight_.empty(); }  // something is granted and not answered
  uint64_t stale_messages() const { return totals_.stale_messages; }
  int64_t bytes_acked(uint64_t lease_id) const;
  size_t open_transfers() const { return transfers_.size(); }

 private:
  enum class PieceState : uint8_t { kAnnounced, kGranted, kSent, kAcked };
  struct PieceEntry {
    v1::Piece piece;
    int64_t bytes = 0;
    PieceState state = PieceState::kAnnounced;
  };
  struct Transfer {
    v1::RequestKey key;
    std::vector<PieceEntry> pieces;
    bool committed = false;
    bool cancelled = false;
    absl::Status why;    // it was cancelled
    bool ended = false;  // the End is out; what is left answers the peer until its Done
    int gathering = 0;   // pieces of which the source may be read now
    int64_t bytes_acked = 0;
    int pieces_acked = 0;
    absl::Time committed_at = absl::InfinitePast();
    absl::Time last_ack = absl::InfinitePast();
    absl::Time last_progress;

    bool peer_owes() const { return committed || cancelled || pieces_acked < int(pieces.size()); }
  };
  struct InFlight {
    uint64_t lease_id = 0;
    size_t piece = 0;
    bool gathering = false;  // ordered, not dropped, not sent yet
  };

  v1::SenderMessage& NewMessage();
  Transfer* Find(uint64_t lease_id);
  void OnGrant(const v1::Grant& grant, absl::Time now);
  void OnAck(uint64_t sequence, absl::Time now);
  void OnNack(const v1::Nack& nack, absl::Time now);
  void OnDone(const v1::Done& done, absl::Time now);
  void EmitEnd(uint64_t lease_id, Transfer& t, const absl::Status& status);  // once
  void EndTransfer(uint64_t lease_id, const absl::Status& status);           // and forget it

  const uint64_t epoch_;
  const Options options_;
  std::map<uint64_t, Transfer> transfers_;  // by lease id
  std::map<uint64_t, InFlight> in_flight_;  // by sequence: granted, not answered yet
  uint64_t next_sequence_ = 0;
  EpochTotals totals_;
  absl::Status death_;
  Outbox outbox_;
};

}  // namespace sluice::kvtransfer
