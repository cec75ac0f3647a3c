#include "kvtransfer/receiver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kvtransfer/error_info.h"

namespace sluice::kvtransfer {
namespace {

v1::ErrorReason ReasonOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return v1::CHECKSUM_MISMATCH;
    case absl::StatusCode::kNotFound:
      return v1::LEASE_UNKNOWN;
    case absl::StatusCode::kCancelled:
      return v1::CANCELLED_BY_CLIENT;
    default:
      return v1::TRANSFER_FAILED;
  }
}

// Bytes that came twice would stand for others that never came.
bool Overlap(const v1::Piece& a, const v1::Piece& b) {
  const auto meet = [](int begin, int end, int other_begin, int other_end) {
    return begin < other_end && other_begin < end;
  };
  return a.layer_group() == b.layer_group() && a.state() == b.state() &&
         meet(a.block_begin(), a.block_end(), b.block_begin(), b.block_end()) &&
         meet(a.layer_begin(), a.layer_end(), b.layer_begin(), b.layer_end()) &&
         meet(a.head_begin(), a.head_end(), b.head_begin(), b.head_end());
}

}  // namespace

v1::ReceiverMessage& Receiver::NewMessage() {
  outbox_.messages.emplace_back().set_epoch(epoch_);
  return outbox_.messages.back();
}

Receiver::Lease* Receiver::Find(uint64_t lease_id) {
  const auto it = leases_.find(lease_id);
  return it == leases_.end() ? nullptr : &it->second;
}

void Receiver::Expect(uint64_t lease_id, const v1::RequestKey& key, PieceSize piece_size, absl::Time now) {
  Lease& lease = leases_[lease_id];
  lease.key = key;
  lease.piece_size = std::move(piece_size);
  lease.last_progress = now;
  if (dead()) FailLease(lease_id, death_, now);
}

void Receiver::Forget(uint64_t lease_id, const absl::Status& why, absl::Time now) {
  if (Find(lease_id) != nullptr) FailLease(lease_id, why, now);
}

void Receiver::OnMessage(const v1::SenderMessage& message, absl::Time now) {
  if (dead() || message.epoch() != epoch_) {
    ++totals_.stale_messages;
    return;
  }
  switch (message.message_case()) {
    case v1::SenderMessage::kReady:
      return OnReady(message.ready(), now);
    case v1::SenderMessage::kData:
      return OnData(message.data(), now);
    case v1::SenderMessage::kCommit:
      return OnCommit(message.commit(), now);
    case v1::SenderMessage::kCancel:
      return OnCancel(message.cancel(), now);
    case v1::SenderMessage::kAbort:
      return Lose(FromErrorInfo(message.abort().error()));
    case v1::SenderMessage::kPing:
      if (!message.ping().reply()) {
        v1::Ping& pong = *NewMessage().mutable_ping();
        pong.set_token(message.ping().token());
        pong.set_reply(true);
      }
      return;
    default:
      return Abort(absl::InternalError("sender sent a message that this version does not know"));
  }
}

void Receiver::OnReady(const v1::Ready& ready, absl::Time now) {
  Lease* lease = Find(ready.lease_id());
  if (lease == nullptr) {
    ++totals_.stale_messages;
    return SendDone(ready.lease_id(), absl::NotFoundError(absl::StrFormat("lease %d is not known", ready.lease_id())));
  }
  if (!lease->failed.ok()) return;  // its Done follows when it is quiet
  if (ready.piece_index() != lease->pieces.size() || lease->commit.has_value()) {
    return Abort(absl::InternalError(absl::StrFormat("piece %d of lease %d announced where %d was due",
                                                     ready.piece_index(), ready.lease_id(), lease->pieces.size())));
  }
  const absl::StatusOr<int64_t> bytes = lease->piece_size(ready.piece());
  absl::Status bad = bytes.status();
  if (bad.ok() && (*bytes != ready.bytes() || *bytes > options_.max_piece_bytes)) {
    bad = absl::InvalidArgumentError(absl::StrFormat("piece of %d bytes announced as %d, at most %d are allowed",
                                                     *bytes, ready.bytes(), options_.max_piece_bytes));
  }
  const auto same = std::find_if(lease->pieces.begin(), lease->pieces.end(),
                                 [&](const auto& before) { return Overlap(before.first, ready.piece()); });
  if (bad.ok() && same != lease->pieces.end()) {
    bad = absl::InvalidArgumentError(absl::StrFormat("piece %d of lease %d has bytes of piece %d", ready.piece_index(),
                                                     ready.lease_id(), same - lease->pieces.begin()));
  }
  if (!bad.ok()) return FailLease(ready.lease_id(), bad, now);
  lease->pending.push_back(ready.piece_index());
  lease->pieces.emplace_back(ready.piece(), ready.bytes());
  lease->last_progress = now;
  GrantMore(now);
}

// Leases take turns: the search starts behind the lease that was granted last.
void Receiver::GrantMore(absl::Time now) {
  while (int(slots_.size()) < options_.window) {
    auto chosen = leases_.end();
    auto it = leases_.upper_bound(last_granted_lease_);
    for (size_t i = 0; i < leases_.size(); ++i, ++it) {
      if (it == leases_.end()) it = leases_.begin();
      const Lease& l = it->second;
      if (!l.pending.empty() && l.failed.ok() && l.granted < options_.lease_window) {
        chosen = it;
        break;
      }
    }
    if (chosen == leases_.end()) return;
    Lease& lease = chosen->second;
    const uint32_t index = lease.pending.front();
    lease.pending.pop_front();
    ++lease.granted;
    lease.last_progress = now;
    last_granted_lease_ = chosen->first;
    Slot& slot = slots_[next_sequence_];
    slot.lease_id = chosen->first;
    slot.piece_index = index;
    slot.granted_at = now;
    outbox_.posts.push_back({next_sequence_, lease.pieces[index].second});
    v1::Grant& grant = *NewMessage().mutable_grant();
    grant.set_lease_id(chosen->first);
    grant.set_piece_index(index);
    grant.set_sequence(next_sequence_);
    ++next_sequence_;
  }
}

void Receiver::OnData(const v1::Data& data, absl::Time now) {
  const auto it = slots_.find(data.sequence());
  if (it == slots_.end() || it->second.data.has_value()) {
    return Abort(absl::InternalError(absl::StrFormat("data %d was not granted or came twice", data.sequence())));
  }
  it->second.data = data;
  if (it->second.halved()) it->second.first_half = now;
  MaybeScatter(data.sequence(), now);
}

void Receiver::Arrived(uint64_t sequence, absl::Time now) {
  if (dead()) return;
  const auto it = slots_.find(sequence);
  if (it == slots_.end() || it->second.arrived) {
    return Abort(absl::InternalError(absl::StrFormat("bytes of piece %d were not granted or came twice", sequence)));
  }
  it->second.arrived = true;
  if (it->second.halved()) it->second.first_half = now;
  MaybeScatter(sequence, now);
}

void Receiver::MaybeScatter(uint64_t sequence, absl::Time now) {
  Slot& slot = slots_.at(sequence);
  if (!slot.arrived || !slot.data.has_value() || slot.scattering) return;
  Lease& lease = leases_.at(slot.lease_id);
  lease.last_progress = now;
  const auto& [piece, bytes] = lease.pieces[slot.piece_index];
  if (lease.failed.ok() && !slot.data->dropped() && slot.data->bytes() == bytes) {
    slot.scattering = true;
    ++lease.scattering;
    outbox_.scatters.push_back({sequence, slot.lease_id, piece, slot.data->checksum()});
    return;
  }
  const uint64_t lease_id = slot.lease_id;
  const bool wrong_size = !slot.data->dropped() && slot.data->bytes() != bytes;
  outbox_.releases.push_back(sequence);
  --lease.granted;
  ++totals_.void_pieces;
  slots_.erase(sequence);
  v1::Nack& nack = *NewMessage().mutable_nack();
  nack.set_sequence(sequence);
  *nack.mutable_error() = ToErrorInfo(absl::CancelledError("the lease has ended"), v1::LEASE_EXPIRED);
  if (wrong_size) FailLease(lease_id, absl::DataLossError("a piece has another size than was granted"), now);
  Settle(lease_id);
  GrantMore(now);
}

void Receiver::Scattered(uint64_t sequence, const absl::Status& status, absl::Time now) {
  const auto it = slots_.find(sequence);
  if (it == slots_.end()) return;
  const uint64_t lease_id = it->second.lease_id;
  Lease& lease = leases_.at(lease_id);
  --lease.scattering;
  --lease.granted;
  lease.last_progress = now;
  outbox_.releases.push_back(sequence);
  if (dead()) {
    slots_.erase(it);
    return Settle(lease_id);
  }
  if (status.ok()) {
    ++lease.landed;
    lease.bytes += lease.pieces[it->second.piece_index].second;
    totals_.bytes += uint64_t(lease.pieces[it->second.piece_index].second);
    ++totals_.pieces;
    NewMessage().mutable_ack()->set_sequence(sequence);
  } else {
    if (absl::IsDataLoss(status)) ++totals_.corrupt_pieces;
    v1::Nack& nack = *NewMessage().mutable_nack();
    nack.set_sequence(sequence);
    *nack.mutable_error() = ToErrorInfo(status, ReasonOf(status));
  }
  slots_.erase(it);
  if (!status.ok()) FailLease(lease_id, status, now);
  Settle(lease_id);
  GrantMore(now);
}

void Receiver::OnCommit(const v1::Commit& commit, absl::Time now) {
  Lease* lease = Find(commit.lease_id());
  if (lease == nullptr) {
    ++totals_.stale_messages;
    return SendDone(commit.lease_id(),
                    absl::NotFoundError(absl::StrFormat("lease %d is not known", commit.lease_id())));
  }
  if (!lease->failed.ok()) return;
  if (lease->commit.has_value() || commit.num_pieces() != lease->pieces.size()) {
    return Abort(absl::InternalError(absl::StrFormat("commit of lease %d names %d pieces, %d were announced",
                                                     commit.lease_id(), commit.num_pieces(), lease->pieces.size())));
  }
  lease->commit = commit;
  lease->last_progress = now;
  Settle(commit.lease_id());
}

void Receiver::OnCancel(const v1::CancelTransfer& cancel, absl::Time now) {
  if (Find(cancel.lease_id()) == nullptr) {
    ++totals_.stale_messages;
    return SendDone(cancel.lease_id(),
                    absl::NotFoundError(absl::StrFormat("lease %d is not known", cancel.lease_id())));
  }
  absl::Status why = FromErrorInfo(cancel.error());
  if (why.ok()) why = absl::CancelledError("cancelled by the sender");
  FailLease(cancel.lease_id(), why, now);
}

void Receiver::FailLease(uint64_t lease_id, const absl::Status& why, absl::Time now) {
  Lease& lease = leases_.at(lease_id);
  if (!lease.failed.ok()) return;
  lease.failed = why.ok() ? absl::CancelledError("released") : why;
  lease.pending.clear();
  lease.failed_at = lease.last_progress = now;
  Settle(lease_id);
  if (!dead()) GrantMore(now);
}

// Emits what the lease's state allows: its End when the blocks are quiet, its Done when nothing granted is left.
void Receiver::Settle(uint64_t lease_id) {
  const auto it = leases_.find(lease_id);
  if (it == leases_.end()) return;
  Lease& lease = it->second;
  const bool complete = lease.failed.ok() && lease.commit.has_value() && lease.landed == lease.pieces.size();
  if (lease.failed.ok() && !complete) return;
  if (!lease.ended && lease.scattering == 0) EmitEnd(lease_id, lease, complete ? absl::OkStatus() : lease.failed);
  if (!lease.ended || (lease.granted > 0 && !dead())) return;
  if (!dead()) SendDone(lease_id, complete ? absl::OkStatus() : lease.failed);
  leases_.erase(it);
}

void Receiver::EmitEnd(uint64_t lease_id, Lease& lease, const absl::Status& status) {
  lease.ended = true;
  End& end = outbox_.ends.emplace_back();
  end.lease_id = lease_id;
  end.status = status;
  end.bytes = lease.bytes;
  if (status.ok()) end.commit = *lease.commit;
}

void Receiver::SendDone(uint64_t lease_id, const absl::Status& status) {
  v1::Done& done = *NewMessage().mutable_done();
  done.set_lease_id(lease_id);
  if (!status.ok()) *done.mutable_error() = ToErrorInfo(status, ReasonOf(status));
}

void Receiver::Abort(const absl::Status& why) {
  if (dead()) return;
  *NewMessage().mutable_abort()->mutable_error() = ToErrorInfo(why, v1::TRANSFER_FAILED);
  Lose(why);
}

void Receiver::Lose(const absl::Status& why) {
  if (dead()) return;
  death_ = why.ok() ? absl::UnavailableError("the pair was closed") : why;
  // Slots being scattered stay until Scattered(): their leases are not quiet before.
  for (auto it = slots_.begin(); it != slots_.end();) {
    if (it->second.scattering) {
      ++it;
      continue;
    }
    --leases_.at(it->second.lease_id).granted;
    it = slots_.erase(it);
  }
  std::vector<uint64_t> ids;
  for (const auto& [id, lease] : leases_) ids.push_back(id);
  for (const uint64_t id : ids) {
    Lease& lease = leases_.at(id);
    if (lease.failed.ok()) lease.failed = death_;
    lease.pending.clear();
    Settle(id);
  }
}

void Receiver::Tick(absl::Time now) {
  if (dead()) return;
  for (const auto& [sequence, slot] : slots_) {
    if (now < DueTime(slot)) continue;
    return Abort(
        absl::DeadlineExceededError(absl::StrFormat("piece %d of lease %d was granted %s ago and %s", slot.piece_index,
                                                    slot.lease_id, absl::FormatDuration(now - slot.granted_at),
                                                    slot.data.has_value() ? "its bytes are lost"
                                                    : slot.arrived        ? "its announcement is lost"
                                                                   : "is held back though the lease has ended")));
  }
  for (auto& [id, lease] : leases_) {
    const bool waiting = lease.granted > 0 || !lease.pending.empty();
    if (!waiting || now - lease.last_progress < options_.progress_timeout) continue;
    // A granted piece that never comes would hold its place in the order for ever: only a new epoch helps.
    if (lease.granted > lease.scattering) {
      return Abort(
          absl::DeadlineExceededError(absl::StrFormat("piece of lease %d was granted %s ago and has not arrived", id,
                                                      absl::FormatDuration(now - lease.last_progress))));
    }
  }
}

absl::Time Receiver::DueTime(const Slot& slot) const {
  if (slot.scattering) return absl::InfiniteFuture();
  if (slot.halved()) return slot.first_half + options_.arrival_timeout;
  const Lease& lease = leases_.at(slot.lease_id);
  if (lease.failed.ok()) return absl::InfiniteFuture();
  return std::max(slot.granted_at, lease.failed_at) + options_.arrival_timeout;
}

Receiver::Outbox Receiver::Take() {
  return std::exchange(outbox_, {});
}

}  // namespace sluice::kvtransfer
