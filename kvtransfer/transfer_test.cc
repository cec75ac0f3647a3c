// Sender and receiver against each other, in one thread, with a seeded network between them.
#include <deque>
#include <map>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"

namespace sluice::kvtransfer {
namespace {

constexpr int64_t kBytesPerBlock = 100;

v1::Piece Blocks(int begin, int end) {
  v1::Piece p;
  p.set_block_begin(begin), p.set_block_end(end);
  p.set_layer_end(1), p.set_head_end(1);
  return p;
}

absl::StatusOr<int64_t> SizeOf(const v1::Piece& p) {
  if (p.block_begin() >= p.block_end()) return absl::InvalidArgumentError("piece: empty block range");
  return (p.block_end() - p.block_begin()) * kBytesPerBlock;
}

// The world between the two machines. Control messages keep their order in each direction; bulk bytes have an order of
// their own; scatters take their time. A piece's content is its (lease, piece index) as a number.
class World {
 public:
  explicit World(uint64_t seed, Receiver::Options options = {}, absl::Duration timeout = absl::Seconds(10))
      : rng(seed), sender(1, {timeout}), receiver(1, options) {}

  void Open(uint64_t lease) {
    receiver.Expect(lease, {}, SizeOf, now);
    sender.Open(lease, {}, now);
  }

  void Collect() {
    Sender::Outbox s = sender.Take();
    for (auto& m : s.messages) to_receiver.push_back(m);
    for (auto& g : s.gathers) gathers.push_back(g);
    for (auto& e : s.ends) {
      ASSERT_TRUE(sender_ends.emplace(e.lease_id, e.status).second) << "lease ended twice at the sender";
    }
    for (const auto& g : gathers) {
      ASSERT_TRUE(g.dropped || sender.dead() || !sender_ends.contains(g.lease_id)) << "reads blocks after the end";
    }
    Receiver::Outbox r = receiver.Take();
    for (auto& p : r.posts) ASSERT_TRUE(posted.emplace(p.sequence, p.bytes).second);
    for (auto& m : r.messages) to_sender.push_back(m);
    for (auto& sc : r.scatters) {
      ASSERT_FALSE(receiver_ends.contains(sc.lease_id)) << "scatter into a lease that has ended";
      scatters.push_back(sc);
    }
    for (uint64_t seq : r.releases) ASSERT_EQ(posted.erase(seq), 1u);
    for (auto& e : r.ends) {
      ASSERT_TRUE(receiver_ends.emplace(e.lease_id, e.status).second) << "lease ended twice at the receiver";
      for (auto& sc : scatters) ASSERT_NE(sc.lease_id, e.lease_id) << "ended while a scatter is under way";
    }
  }

  // One random thing happens. False: nothing is left to happen.
  bool Step() {
    Collect();
    std::vector<int> can;
    if (!to_receiver.empty()) can.push_back(0);
    if (!to_sender.empty()) can.push_back(1);
    if (!gathers.empty()) can.push_back(2);
    if (!bulk.empty()) can.push_back(3);
    if (!scatters.empty()) can.push_back(4);
    if (can.empty()) return false;
    now += absl::Milliseconds(1);
    switch (can[rng() % can.size()]) {
      case 0: {
        auto m = to_receiver.front();
        to_receiver.pop_front();
        receiver.OnMessage(m, now);
        break;
      }
      case 1: {
        auto m = to_sender.front();
        to_sender.pop_front();
        sender.OnMessage(m, now);
        break;
      }
      case 2: {
        auto g = gathers.front();
        gathers.pop_front();
        if (sender.dead()) break;
        EXPECT_TRUE(posted.contains(g.sequence) || receiver.dead()) << "sent before the receive was posted";
        uint64_t content = g.lease_id * 1000 + uint64_t(g.piece.block_begin());
        const uint64_t checksum = content;
        if (corrupt.contains(g.sequence)) content ^= 1, ++corrupted;
        bulk.push_back({g.sequence, content});
        sender.Sent(g.sequence, checksum, now);
        break;
      }
      case 3: {
        const size_t i = rng() % bulk.size();
        arrived[bulk[i].first] = bulk[i].second;
        const uint64_t sequence = bulk[i].first;
        bulk.erase(bulk.begin() + long(i));
        receiver.Arrived(sequence, now);
        break;
      }
      case 4: {
        const size_t i = rng() % scatters.size();
        const Receiver::Scatter sc = scatters[i];
        scatters.erase(scatters.begin() + long(i));
        const bool good = arrived.at(sc.sequence) == sc.checksum;
        if (good) landed[sc.lease_id].insert(sc.piece.block_begin());
        receiver.Scattered(sc.sequence, good ? absl::OkStatus() : absl::DataLossError("checksum mismatch"), now);
        break;
      }
    }
    Collect();
    return !testing::Test::HasFatalFailure();
  }

  void RunDry() {
    while (Step()) {
    }
  }

  std::mt19937_64 rng;
  absl::Time now = absl::FromUnixSeconds(1000);
  Sender sender;
  Receiver receiver;
  std::deque<v1::SenderMessage> to_receiver;
  std::deque<v1::ReceiverMessage> to_sender;
  std::deque<Sender::Gather> gathers;
  std::vector<std::pair<uint64_t, uint64_t>> bulk;  // sequence, content
  std::vector<Receiver::Scatter> scatters;
  std::map<uint64_t, uint64_t> arrived;
  std::map<uint64_t, int64_t> posted;
  std::map<uint64_t, std::set<int>> landed;
  std::set<uint64_t> corrupt;  // sequences whose bytes change on the way
  int corrupted = 0;
  std::map<uint64_t, absl::Status> sender_ends, receiver_ends;
};

TEST(Transfer, OneLeaseCommits) {
  World w(1);
  w.Open(7);
  for (int i = 0; i < 5; ++i) w.sender.AddPiece(7, Blocks(i, i + 1), kBytesPerBlock, w.now);
  w.RunDry();
  EXPECT_TRUE(w.receiver_ends.empty()) << "no commit, no end";
  EXPECT_EQ(w.sender.bytes_acked(7), 5 * kBytesPerBlock);
  w.sender.Commit(7, {}, w.now);
  w.RunDry();
  EXPECT_TRUE(w.sender_ends.at(7).ok());
  EXPECT_TRUE(w.receiver_ends.at(7).ok());
  EXPECT_EQ(w.landed[7].size(), 5u);
}

TEST(Transfer, CommitWithoutPiecesIsAWholePrefixHit) {
  World w(1);
  w.Open(7);
  w.sender.Commit(7, {}, w.now);
  w.RunDry();
  EXPECT_TRUE(w.sender_ends.at(7).ok());
  EXPECT_TRUE(w.receiver_ends.at(7).ok());
}

TEST(Transfer, CorruptPieceFailsItsLeaseOnly) {
  World w(3);
  w.corrupt = {1};
  w.Open(1), w.Open(2);
  for (int i = 0; i < 3; ++i) {
    w.sender.AddPiece(1, Blocks(i, i + 1), kBytesPerBlock, w.now);
    w.sender.AddPiece(2, Blocks(i, i + 1), kBytesPerBlock, w.now);
  }
  w.sender.Commit(1, {}, w.now), w.sender.Commit(2, {}, w.now);
  w.RunDry();
  EXPECT_EQ(w.corrupted, 1) << "the fault must have happened";
  int failed = 0;
  for (uint64_t lease : {1, 2}) {
    EXPECT_EQ(w.sender_ends.at(lease).code(), w.receiver_ends.at(lease).code());
    if (!w.receiver_ends.at(lease).ok()) {
      ++failed;
      EXPECT_EQ(w.receiver_ends.at(lease).code(), absl::StatusCode::kDataLoss);
    }
  }
  EXPECT_EQ(failed, 1);
}

TEST(Transfer, UnknownLeaseIsAnsweredAndChangesNothing) {
  World w(4);
  w.sender.Open(9, {}, w.now);
  w.sender.AddPiece(9, Blocks(0, 1), kBytesPerBlock, w.now);
  w.RunDry();
  EXPECT_EQ(w.sender_ends.at(9).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(w.receiver.dead() || w.sender.dead());
}

// The same bytes twice and others never: the count and the sum are right, the KV is not.
TEST(Transfer, APieceThatOverlapsAnotherFailsTheLease) {
  World w(6);
  w.Open(9);
  w.sender.AddPiece(9, Blocks(0, 1), kBytesPerBlock, w.now);
  w.sender.AddPiece(9, Blocks(0, 1), kBytesPerBlock, w.now);
  w.sender.Commit(9, {}, w.now);
  w.RunDry();
  EXPECT_EQ(w.receiver_ends.at(9).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(w.receiver.dead());
}

TEST(Transfer, WrongSizeOrShapeFailsTheLease) {
  for (int64_t bytes : {kBytesPerBlock - 1, int64_t{0}, int64_t{-5}, int64_t{1} << 40}) {
    World w(5);
    w.Open(9);
    w.sender.AddPiece(9, Blocks(0, 1), bytes, w.now);
    w.RunDry();
    EXPECT_EQ(w.receiver_ends.at(9).code(), absl::StatusCode::kInvalidArgument) << bytes;
    EXPECT_FALSE(w.receiver.dead());
  }
}

TEST(Transfer, WindowsHoldAndLeasesTakeTurns) {
  Receiver::Options options;
  options.window = 3;
  options.lease_window = 2;
  World w(6, options);
  w.Open(1), w.Open(2), w.Open(3);
  for (uint64_t lease : {1, 2, 3}) {
    for (int i = 0; i < 4; ++i) w.sender.AddPiece(lease, Blocks(i, i + 1), kBytesPerBlock, w.now);
  }
  w.Collect();
  std::vector<uint64_t> granted;
  for (auto& m : w.to_receiver) w.receiver.OnMessage(m, w.now);
  w.to_receiver.clear();
  w.Collect();
  for (auto& m : w.to_sender) granted.push_back(m.grant().lease_id());
  // Lease 1 was alone when its two pieces came; the third place goes to the next lease.
  EXPECT_THAT(granted, testing::ElementsAre(1, 1, 2));
  for (uint64_t lease : {1, 2, 3}) w.sender.Commit(lease, {}, w.now);
  w.RunDry();
  for (uint64_t lease : {1, 2, 3}) EXPECT_TRUE(w.receiver_ends.at(lease).ok());
}

TEST(Transfer, SilenceAbortsThePairOnBothSides) {
  World w(7);
  w.Open(1);
  w.sender.AddPiece(1, Blocks(0, 1), kBytesPerBlock, w.now);
  w.Collect();
  w.receiver.OnMessage(w.to_receiver.front(), w.now);  // granted, and the grant is lost
  w.to_receiver.clear();
  w.Collect();
  w.to_sender.clear();
  w.now += absl::Seconds(9);
  w.sender.Tick(w.now), w.receiver.Tick(w.now);
  EXPECT_FALSE(w.sender.dead() || w.receiver.dead());
  w.now += absl::Seconds(2);
  w.sender.Tick(w.now), w.receiver.Tick(w.now);
  EXPECT_TRUE(w.sender.dead() && w.receiver.dead());
  w.Collect();
  EXPECT_EQ(w.sender_ends.at(1).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(w.receiver_ends.at(1).code(), absl::StatusCode::kDeadlineExceeded);
}

// Both sides of a piece under way: granted, gathered, sent, and then the bytes are lost.
class LostPiece : public testing::Test {
 protected:
  void SetUp() override {
    w_.Open(1);
    w_.sender.AddPiece(1, Blocks(0, 1), kBytesPerBlock, w_.now);
    while (w_.bulk.empty()) ASSERT_TRUE(w_.Step());
    w_.bulk.clear();
    w_.RunDry();
    ASSERT_TRUE(w_.sender_ends.empty() && w_.receiver_ends.empty());
  }
  void Tick(absl::Duration after) {
    w_.now += after;
    w_.sender.Tick(w_.now), w_.receiver.Tick(w_.now);
    w_.RunDry();
  }
  World w_{12};
};

TEST_F(LostPiece, EndsThePairSoon) {
  Tick(absl::Milliseconds(1900));
  EXPECT_FALSE(w_.receiver.dead());
  Tick(absl::Milliseconds(200));
  EXPECT_TRUE(w_.receiver.dead() && w_.sender.dead());
  EXPECT_EQ(w_.sender_ends.at(1).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(w_.receiver_ends.at(1).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(LostPiece, CancelFreesBothSidesAtOnce) {
  w_.sender.Cancel(1, absl::CancelledError("client"), w_.now);
  w_.Collect();
  EXPECT_EQ(w_.sender_ends.at(1).code(), absl::StatusCode::kCancelled);
  w_.RunDry();
  EXPECT_EQ(w_.receiver_ends.at(1).code(), absl::StatusCode::kCancelled);
  Tick(absl::Milliseconds(2100));
  EXPECT_TRUE(w_.receiver.dead() && w_.sender.dead()) << "the channel is out of step: a new epoch must begin";
}

TEST_F(LostPiece, ForgettingItFreesBothSidesSoon) {
  w_.receiver.Forget(1, absl::CancelledError("released"), w_.now);
  w_.Collect();
  EXPECT_EQ(w_.receiver_ends.at(1).code(), absl::StatusCode::kCancelled);
  Tick(absl::Milliseconds(2100));
  EXPECT_TRUE(w_.sender_ends.contains(1));
}

TEST(Transfer, CancelWaitsForAGatherUnderWayAndForNothingElse) {
  World w(13);
  w.Open(1);
  for (int i = 0; i < 3; ++i) w.sender.AddPiece(1, Blocks(i, i + 1), kBytesPerBlock, w.now);
  while (w.gathers.empty()) ASSERT_TRUE(w.Step());
  w.sender.Cancel(1, absl::CancelledError("client"), w.now);
  w.Collect();
  EXPECT_FALSE(w.sender_ends.contains(1)) << "its blocks are being read";
  const Sender::Gather gather = w.gathers.front();
  w.gathers.pop_front();
  w.bulk.push_back({gather.sequence, 1});
  w.sender.Sent(gather.sequence, 1, w.now);
  w.Collect();
  EXPECT_TRUE(w.sender_ends.contains(1));
  w.RunDry();
  EXPECT_EQ(w.sender.open_transfers(), 0u) << "the peer's Done ends the rest";
  EXPECT_FALSE(w.sender.dead() || w.receiver.dead());
  EXPECT_TRUE(w.landed[1].empty());
}

// A peer that was told to stop and holds a granted piece back.
TEST(Transfer, AnEndedLeaseDoesNotWaitForWhatIsHeldBack) {
  World w(14);
  w.Open(1);
  w.sender.AddPiece(1, Blocks(0, 1), kBytesPerBlock, w.now);
  while (w.gathers.empty()) ASSERT_TRUE(w.Step());
  w.receiver.Forget(1, absl::CancelledError("released"), w.now);
  w.Collect();
  EXPECT_TRUE(w.receiver_ends.contains(1));
  w.receiver.Tick(w.now + absl::Milliseconds(1900));
  EXPECT_FALSE(w.receiver.dead());
  w.receiver.Tick(w.now + absl::Milliseconds(2100));
  EXPECT_TRUE(w.receiver.dead());
}

TEST(Transfer, SlowPrefillIsNotSilence) {
  World w(8);
  w.Open(1);
  w.sender.AddPiece(1, Blocks(0, 1), kBytesPerBlock, w.now);
  w.RunDry();
  w.now += absl::Hours(1);
  w.sender.Tick(w.now), w.receiver.Tick(w.now);
  w.sender.AddPiece(1, Blocks(1, 2), kBytesPerBlock, w.now);
  w.sender.Commit(1, {}, w.now);
  w.sender.Tick(w.now), w.receiver.Tick(w.now);
  w.RunDry();
  EXPECT_TRUE(w.receiver_ends.at(1).ok());
}

TEST(Transfer, StaleEpochIsDroppedAndCounted) {
  World w(9);
  w.Open(1);
  v1::SenderMessage old;
  old.set_epoch(0);
  old.mutable_data()->set_sequence(0);
  w.receiver.OnMessage(old, w.now);
  v1::ReceiverMessage old_ack;
  old_ack.set_epoch(2);
  old_ack.mutable_ack()->set_sequence(0);
  w.sender.OnMessage(old_ack, w.now);
  EXPECT_EQ(w.receiver.stale_messages(), 1u);
  EXPECT_EQ(w.sender.stale_messages(), 1u);
  EXPECT_FALSE(w.receiver.dead() || w.sender.dead());
}

// What a broken or hostile peer may say: the pair is aborted, nothing is scattered, nothing crashes.
TEST(Transfer, NonsenseAbortsThePair) {
  const auto to_receiver = [](auto fill) {
    World w(10);
    w.Open(1);
    v1::SenderMessage m;
    m.set_epoch(1);
    fill(m);
    w.receiver.OnMessage(m, w.now);
    w.Collect();
    EXPECT_TRUE(w.receiver.dead()) << m.ShortDebugString();
    EXPECT_TRUE(w.receiver_ends.contains(1) && w.scatters.empty());
  };
  to_receiver([](auto& m) { m.mutable_data()->set_sequence(0); });
  to_receiver([](auto& m) { m.mutable_ready()->set_lease_id(1), m.mutable_ready()->set_piece_index(3); });
  to_receiver([](auto& m) { m.mutable_commit()->set_lease_id(1), m.mutable_commit()->set_num_pieces(2); });
  to_receiver([](auto&) {});
  const auto to_sender = [](auto fill) {
    World w(11);
    w.Open(1);
    w.sender.AddPiece(1, Blocks(0, 1), kBytesPerBlock, w.now);
    v1::ReceiverMessage m;
    m.set_epoch(1);
    fill(m);
    w.sender.OnMessage(m, w.now);
    w.Collect();
    EXPECT_TRUE(w.sender.dead()) << m.ShortDebugString();
    EXPECT_TRUE(w.sender_ends.contains(1));
  };
  to_sender([](auto& m) { m.mutable_grant()->set_lease_id(1), m.mutable_grant()->set_sequence(1); });
  to_sender([](auto& m) { m.mutable_grant()->set_lease_id(1), m.mutable_grant()->set_piece_index(1); });
  to_sender([](auto& m) { m.mutable_ack()->set_sequence(0); });
  to_sender([](auto& m) { m.mutable_nack()->set_sequence(0); });
  to_sender([](auto& m) { m.mutable_done()->set_lease_id(1); });  // done, OK, before the commit
  to_sender([](auto&) {});
}

// Random runs with cancels from either side, corruption and a pair that dies at a random moment.
TEST(Transfer, RandomRunsKeepTheInvariants) {
  const uint64_t base = std::random_device{}();
  int ok = 0, failed = 0, aborted = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << base + round);
    Receiver::Options options;
    World w(base + round, options);
    const int leases = 1 + int(w.rng() % 4);
    std::map<uint64_t, int> pieces;
    std::set<uint64_t> open;
    for (int l = 1; l <= leases; ++l) w.Open(uint64_t(l)), open.insert(uint64_t(l));
    for (int i = 0; i < 3; ++i) {
      if (w.rng() % 4 == 0) w.corrupt.insert(w.rng() % 12);
    }
    const bool lose = w.rng() % 5 == 0;
    const uint64_t lose_at = w.rng() % 80;
    for (uint64_t step = 0; step < 400; ++step) {
      if (lose && step == lose_at) {
        w.sender.Lose(absl::UnavailableError("peer died"));
        w.receiver.Lose(absl::UnavailableError("peer died"));
        ++aborted;
      }
      if (!open.empty() && w.rng() % 3 == 0) {
        const uint64_t lease = *std::next(open.begin(), long(w.rng() % open.size()));
        switch (w.rng() % 12) {
          case 0:
            w.sender.Commit(lease, {}, w.now);
            open.erase(lease);
            break;
          case 1:
            if (w.rng() % 3 == 0) w.sender.Cancel(lease, absl::CancelledError("client"), w.now);
            break;
          case 2:
            if (w.rng() % 3 == 0) w.receiver.Forget(lease, absl::CancelledError("released"), w.now);
            break;
          default: {
            const int n = pieces[lease]++;
            w.sender.AddPiece(lease, Blocks(n, n + 1), kBytesPerBlock, w.now);
          }
        }
      }
      w.Step();
      if (HasFatalFailure()) return;
    }
    for (uint64_t lease : open) w.sender.Commit(lease, {}, w.now);
    w.RunDry();
    if (HasFatalFailure()) return;
    ASSERT_EQ(w.sender.dead(), lose) << w.sender.death();
    ASSERT_EQ(w.receiver.dead(), lose) << w.receiver.death();
    ASSERT_EQ(w.sender_ends.size(), size_t(leases));
    ASSERT_EQ(w.receiver_ends.size(), size_t(leases));
    ASSERT_EQ(w.receiver.open_leases(), 0u);
    for (const auto& [lease, status] : w.receiver_ends) {
      if (status.ok()) {
        ++ok;
        // Every piece that was ever added landed. (A cancelled sender adds none, but then it never commits.)
        ASSERT_EQ(int(w.landed[lease].size()), pieces[lease]);
      } else {
        ++failed;
      }
      if (!lose) {
        ASSERT_EQ(w.sender_ends.at(lease).ok(), status.ok()) << lease;
      }
      if (w.sender_ends.at(lease).ok()) {
        ASSERT_TRUE(status.ok()) << "the sender believes in a commit that was none";
      }
    }
    if (!lose) {
      ASSERT_TRUE(w.posted.empty());
    }
  }
  // The runs must have been interesting.
  EXPECT_GT(ok, 500);
  EXPECT_GT(failed, 500);
  EXPECT_GT(aborted, 100);
}

}  // namespace
}  // namespace sluice::kvtransfer
