// The decode side of one pair of ranks, as a pure state machine. It owns the credit: nothing is sent that it did not
// grant, and it decides what has landed.
//
// Promises:
//  - A lease ends exactly once, by an End, and only when no scatter of it is under way: from then on its blocks
//    belong to the owner again and no late write can touch them.
//  - End is OK only when a Commit named the number of pieces and exactly these arrived, each with the right checksum, no
//    two of them overlapping: so where their bytes add up to what is due, everything has come.
//  - At most `window` pieces are granted and not landed, at most `lease_window` of one lease; leases take turns.
//  - A piece that is lost, or held back by a peer that was told to stop, aborts the pair within `arrival_timeout`: its
//    place in the order of the channel would be taken for ever.
//  - Anything abnormal aborts the pair; a piece of an unknown or ended lease is answered by Done with an error.
//
// One instance lives for one epoch. Orders are carried out by the owner, who reports Arrived() and Scattered().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/flow_book.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

class Receiver {
 public:
  struct Options {
    int window = 4;
    int lease_window = 3;  // with one, gathering and scattering of a lone lease would take turns
    int64_t max_piece_bytes = int64_t{8} << 20;  // each piece costs four messages, whatever its size
    // A lease with pieces announced or granted but without progress for this long fails.
    absl::Duration progress_timeout = absl::Seconds(10);
    // Of a piece's DATA and its bytes the second comes at most this long after the first; and what was granted comes
    // at most this long after its lease has failed.
    absl::Duration arrival_timeout = absl::Seconds(2);
  };

  // Post a receive on the channel. Comes before the Grant that it belongs to.
  struct Post {
    uint64_t sequence = 0;
    int64_t bytes = 0;
  };
  // Scatter the arrived bytes and verify their checksum, then call Scattered().
  struct Scatter {
    uint64_t sequence = 0;
    uint64_t lease_id = 0;
    v1::Piece piece;
    uint64_t checksum = 0;
  };
  struct End {
    uint64_t lease_id = 0;
    absl::Status status;
    v1::Commit commit;  // when OK
    int64_t bytes = 0;
    // When OK: how long after the Commit, which says that the prompt is computed, the last piece had landed. Filled in
    // by the endpoint, on a clock that counts its own stalls too.
    absl::Duration exposed;
  };
  struct Outbox {
    std::vector<Post> posts;
    std::vector<v1::ReceiverMessage> messages;  // after the posts
    std::vector<Scatter> scatters;
    std::vector<uint64_t> releases;  // sequences whose channel buffer is free again
    std::vector<End> ends;
  };

  // Returns the exact bytes of a piece of this lease, or an error naming what is wrong with it.
  using PieceSize = std::function<absl::StatusOr<int64_t>(const v1::Piece&)>;

  Receiver(uint64_t epoch, const Options& options) : epoch_(epoch), options_(options) {}

  // REQUIRES: the lease id is new to this instance.
  void Expect(uint64_t lease_id, const v1::RequestKey& key, PieceSize piece_size, absl::Time now);

  // The owner ends the lease (released, expired, cancelled). The End follows as soon as no scatter is under way.
  void Forget(uint64_t lease_id, const absl::Status& why, absl::Time now);

  void OnMessage(const v1::SenderMessage& message, absl::Time now);
  void Arrived(uint64_t sequence, absl::Time now);
  void Scattered(uint64_t sequence, const absl::Status& status, absl::Time now);

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
  bool busy() const { return !slots_.empty(); }  // something is granted and has not landed
  uint64_t stale_messages() const { return totals_.stale_messages; }
  size_t open_leases() const { return leases_.size(); }

 private:
  struct Lease {
    v1::RequestKey key;
    PieceSize piece_size;
    std::vector<std::pair<v1::Piece, int64_t>> pieces;  // as announced
    std::deque<uint32_t> pending;                       // announced, not granted
    int granted = 0;                                    // granted, not landed
    int scattering = 0;
    uint32_t landed = 0;
    int64_t bytes = 0;
    std::optional<v1::Commit> commit;
    absl::Status failed;  // not OK: it only waits for its granted pieces
    absl::Time failed_at;
    bool ended = false;  // the End is out
    absl::Time last_progress;
  };
  struct Slot {
    uint64_t lease_id = 0;
    uint32_t piece_index = 0;
    bool arrived = false;
    bool scattering = false;
    std::optional<v1::Data> data;
    absl::Time granted_at;
    absl::Time first_half;  // when its bytes or its DATA came, whichever was first

    bool halved() const { return arrived != data.has_value(); }
  };

  v1::ReceiverMessage& NewMessage();
  Lease* Find(uint64_t lease_id);
  void OnReady(const v1::Ready& ready, absl::Time now);
  void OnData(const v1::Data& data, absl::Time now);
  void OnCommit(const v1::Commit& commit, absl::Time now);
  void OnCancel(const v1::CancelTransfer& cancel, absl::Time now);
  void MaybeScatter(uint64_t sequence, absl::Time now);
  void GrantMore(absl::Time now);
  void FailLease(uint64_t lease_id, const absl::Status& why, absl::Time now);
  void Settle(uint64_t lease_id);
  void SendDone(uint64_t lease_id, const absl::Status& status);
  void EmitEnd(uint64_t lease_id, Lease& lease, const absl::Status& status);
  absl::Time DueTime(const Slot& slot) const;  // of what is missing of the piece; InfiniteFuture: no such limit

  const uint64_t epoch_;
  const Options options_;
  std::map<uint64_t, Lease> leases_;
  std::map<uint64_t, Slot> slots_;  // by sequence: granted, not landed
  uint64_t next_sequence_ = 0;
  uint64_t last_granted_lease_ = 0;  // turns: the next grant looks beyond this id first
  EpochTotals totals_;
  absl::Status death_;
  Outbox outbox_;
};

}  // namespace sluice::kvtransfer
