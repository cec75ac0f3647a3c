#include "kvtransfer/sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kvtransfer/error_info.h"

namespace sluice::kvtransfer {

v1::SenderMessage& Sender::NewMessage() {
  outbox_.messages.emplace_back().set_epoch(epoch_);
  return outbox_.messages.back();
}

Sender::Transfer* Sender::Find(uint64_t lease_id) {
  const auto it = transfers_.find(lease_id);
  return it == transfers_.end() ? nullptr : &it->second;
}

void Sender::Open(uint64_t lease_id, const v1::RequestKey& key, absl::Time now) {
  Transfer& t = transfers_[lease_id];
  t.key = key;
  t.last_progress = now;
  if (dead()) EndTransfer(lease_id, death_);
}

void Sender::AddPiece(uint64_t lease_id, const v1::Piece& piece, int64_t bytes, absl::Time now) {
  Transfer* t = Find(lease_id);
  if (t == nullptr || t->cancelled) return;
  if (!t->peer_owes()) t->last_progress = now;
  v1::Ready& ready = *NewMessage().mutable_ready();
  ready.set_lease_id(lease_id);
  *ready.mutable_key() = t->key;
  *ready.mutable_piece() = piece;
  ready.set_bytes(bytes);
  ready.set_piece_index(uint32_t(t->pieces.size()));
  t->pieces.push_back({piece, bytes});
}

void Sender::Commit(uint64_t lease_id, v1::Commit commit, absl::Time now) {
  Transfer* t = Find(lease_id);
  if (t == nullptr || t->cancelled) return;
  if (!t->peer_owes()) t->last_progress = now;
  t->committed = true;
  t->committed_at = now;
  commit.set_lease_id(lease_id);
  *commit.mutable_key() = t->key;
  commit.set_num_pieces(uint32_t(t->pieces.size()));
  *NewMessage().mutable_commit() = std::move(commit);
}

void Sender::Cancel(uint64_t lease_id, const absl::Status& why, absl::Time now) {
  Transfer* t = Find(lease_id);
  if (t == nullptr || t->cancelled) return;
  t->cancelled = true;
  t->why = why.ok() ? absl::CancelledError("cancelled") : why;
  t->last_progress = now;
  v1::CancelTransfer& cancel = *NewMessage().mutable_cancel();
  cancel.set_lease_id(lease_id);
  *cancel.mutable_error() = ToErrorInfo(t->why, v1::CANCELLED_BY_CLIENT);
  if (t->gathering == 0) EmitEnd(lease_id, *t, t->why);
}

void Sender::Sent(uint64_t sequence, uint64_t checksum, absl::Time now) {
  const auto it = in_flight_.find(sequence);
  if (it == in_flight_.end()) return;  // the pair was aborted meanwhile
  Transfer& t = transfers_.at(it->second.lease_id);
  PieceEntry& piece = t.pieces[it->second.piece];
  piece.state = PieceState::kSent;
  t.last_progress = now;
  v1::Data& data = *NewMessage().mutable_data();
  data.set_sequence(sequence);
  data.set_bytes(piece.bytes);
  data.set_checksum(checksum);
  data.set_dropped(t.cancelled);
  if (!std::exchange(it->second.gathering, false)) return;
  if (--t.gathering == 0 && t.cancelled) EmitEnd(it->second.lease_id, t, t.why);
}

void Sender::OnMessage(const v1::ReceiverMessage& message, absl::Time now) {
  if (dead() || message.epoch() != epoch_) {
    ++totals_.stale_messages;
    return;
  }
  switch (message.message_case()) {
    case v1::ReceiverMessage::kGrant:
      return OnGrant(message.grant(), now);
    case v1::ReceiverMessage::kAck:
      return OnAck(message.ack().sequence(), now);
    case v1::ReceiverMessage::kNack:
      return OnNack(message.nack(), now);
    case v1::ReceiverMessage::kDone:
      return OnDone(message.done(), now);
    case v1::ReceiverMessage::kAbort:
      return Lose(FromErrorInfo(message.abort().error()));
    case v1::ReceiverMessage::kPing:
      if (!message.ping().reply()) {
        v1::Ping& pong = *NewMessage().mutable_ping();
        pong.set_token(message.ping().token());
        pong.set_reply(true);
      }
      return;
    default:
      return Abort(absl::InternalError("receiver sent a message that this version does not know"));
  }
}

void Sender::OnGrant(const v1::Grant& grant, absl::Time now) {
  Transfer* t = Find(grant.lease_id());
  if (grant.sequence() != next_sequence_) {
    return Abort(
        absl::InternalError(absl::StrFormat("grant %d came where %d was due", grant.sequence(), next_sequence_)));
  }
  if (t == nullptr || grant.piece_index() >= t->pieces.size() ||
      t->pieces[grant.piece_index()].state != PieceState::kAnnounced) {
    return Abort(absl::InternalError(absl::StrFormat("grant of piece %d of lease %d, which was not announced",
                                                     grant.piece_index(), grant.lease_id())));
  }
  PieceEntry& piece = t->pieces[grant.piece_index()];
  piece.state = PieceState::kGranted;
  t->last_progress = now;
  in_flight_[next_sequence_] = {grant.lease_id(), grant.piece_index(), !t->cancelled};
  if (!t->cancelled) ++t->gathering;
  outbox_.gathers.push_back({next_sequence_, grant.lease_id(), piece.piece, piece.bytes, t->cancelled});
  ++next_sequence_;
}

void Sender::OnAck(uint64_t sequence, absl::Time now) {
  const auto it = in_flight_.find(sequence);
  if (it == in_flight_.end()) return Abort(absl::InternalError(absl::StrFormat("ack of unknown piece %d", sequence)));
  Transfer& t = transfers_.at(it->second.lease_id);
  PieceEntry& piece = t.pieces[it->second.piece];
  if (piece.state != PieceState::kSent) {
    return Abort(absl::InternalError(absl::StrFormat("ack of piece %d before it was sent", sequence)));
  }
  piece.state = PieceState::kAcked;
  t.bytes_acked += piece.bytes;
  totals_.bytes += uint64_t(piece.bytes);
  ++totals_.pieces;
  ++t.pieces_acked;
  t.last_ack = t.last_progress = now;
  if (!t.ended) outbox_.acks.push_back({it->second.lease_id, t.bytes_acked});
  in_flight_.erase(it);
}

// The receiver ends the lease with a Done of its own; here the piece only leaves the books.
void Sender::OnNack(const v1::Nack& nack, absl::Time now) {
  const auto it = in_flight_.find(nack.sequence());
  if (it == in_flight_.end()) {
    return Abort(absl::InternalError(absl::StrFormat("nack of unknown piece %d", nack.sequence())));
  }
  Transfer& t = transfers_.at(it->second.lease_id);
  if (t.pieces[it->second.piece].state != PieceState::kSent) {
    return Abort(absl::InternalError(absl::StrFormat("nack of piece %d before it was sent", nack.sequence())));
  }
  t.last_progress = now;
  ++(nack.error().reason() == v1::CHECKSUM_MISMATCH ? totals_.corrupt_pieces : totals_.void_pieces);
  in_flight_.erase(it);
}

void Sender::OnDone(const v1::Done& done, absl::Time) {
  Transfer* t = Find(done.lease_id());
  if (t == nullptr) {  // it answers a READY that crossed an earlier Done
    ++totals_.stale_messages;
    return;
  }
  const bool outstanding = std::any_of(in_flight_.begin(), in_flight_.end(),
                                       [&](const auto& f) { return f.second.lease_id == done.lease_id(); });
  const absl::Status status = FromErrorInfo(done.error());
  if (outstanding || (status.ok() && (!t->committed || t->pieces_acked != int(t->pieces.size())))) {
    return Abort(absl::InternalError(absl::StrFormat("lease %d was called done too early", done.lease_id())));
  }
  EndTransfer(done.lease_id(), status);
}

void Sender::EmitEnd(uint64_t lease_id, Transfer& t, const absl::Status& status) {
  if (std::exchange(t.ended, true)) return;
  outbox_.ends.push_back({lease_id, status, t.bytes_acked, t.pieces_acked, t.committed_at, t.last_ack});
}

void Sender::EndTransfer(uint64_t lease_id, const absl::Status& status) {
  const auto it = transfers_.find(lease_id);
  EmitEnd(lease_id, it->second, status);
  transfers_.erase(it);
}

void Sender::Abort(const absl::Status& why) {
  if (dead()) return;
  *NewMessage().mutable_abort()->mutable_error() = ToErrorInfo(why, v1::TRANSFER_FAILED);
  Lose(why);
}

void Sender::Lose(const absl::Status& why) {
  if (dead()) return;
  death_ = why.ok() ? absl::UnavailableError("the pair was closed") : why;
  in_flight_.clear();
  while (!transfers_.empty()) EndTransfer(transfers_.begin()->first, death_);
}

void Sender::Tick(absl::Time now) {
  for (const auto& [lease_id, t] : transfers_) {
    if (!t.peer_owes() || now - t.last_progress < options_.progress_timeout) continue;
    return Abort(absl::DeadlineExceededError(
        absl::StrFormat("no progress of lease %d for %s", lease_id, absl::FormatDuration(now - t.last_progress))));
  }
}

Sender::Outbox Sender::Take() {
  return std::exchange(outbox_, {});
}

int64_t Sender::bytes_acked(uint64_t lease_id) const {
  const auto it = transfers_.find(lease_id);
  return it == transfers_.end() ? 0 : it->second.bytes_acked;
}

}  // namespace sluice::kvtransfer
