#include "kvtransfer/testing/hostile_peer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "glog/logging.h"
#include "kvtransfer/piece_copy.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/tcp_frames.h"

namespace sluice::kvtransfer {
namespace {

constexpr uint64_t kEpoch = 3;
constexpr uint64_t kLeases = 3;
constexpr int kBlocks = 6, kFirstBlock = 1;
const kernels::KvLayout kLayout{4, 2, 4, 4, kernels::KvDType::kF32};

// Draws from the bytes; zeros when they are used up.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  uint8_t Byte() {
    if (left_.empty()) return 0;
    const uint8_t byte = left_.front();
    left_ = left_.subspan(1);
    return byte;
  }
  int Below(int n) { return Byte() % n; }
  std::string Take(size_t most) {
    const auto part = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(part.size());
    return std::string(part.begin(), part.end());
  }
  // Mostly near `right`, sometimes absurd.
  uint64_t Near(uint64_t right) {
    switch (Below(16)) {
      case 0:
        return right + 1;
      case 1:
        return right - 1;
      case 2:
        return ~uint64_t{0} >> Below(64);
      case 3:
        return uint64_t(Byte());
      default:
        return right;
    }
  }

 private:
  std::span<const uint8_t> left_;
};

PoolView Kv() {
  return {kLayout, 0, kBlocks, [](int) { return static_cast<std::byte*>(nullptr); }};
}

// The next of a lease's blocks, mostly.
v1::Piece SomePiece(Bytes& bytes, uint64_t index) {
  v1::Piece piece;
  piece.set_block_begin(int(bytes.Near(kFirstBlock + index % uint64_t(kBlocks - kFirstBlock))));
  piece.set_block_end(int(bytes.Near(uint64_t(piece.block_begin() + 1))));
  piece.set_layer_end(int(bytes.Near(uint64_t(kLayout.num_layers))));
  piece.set_head_end(int(bytes.Near(uint64_t(kLayout.num_kv_heads))));
  piece.set_state(bytes.Below(32) == 0);
  return piece;
}

absl::StatusOr<int64_t> SizeOf(const v1::Piece& piece) {
  if (absl::Status s = ValidatePiece(piece, Kv(), kBlocks, kFirstBlock); !s.ok()) return s;
  return int64_t(PieceBytes(piece, kLayout));
}

class AgainstReceiver {
 public:
  AgainstReceiver(Bytes bytes, HostileCounts& counts) : bytes_(bytes), counts_(counts), machine_(kEpoch, Options()) {}

  void Run() {
    for (uint64_t lease = 1; lease <= kLeases; ++lease) machine_.Expect(lease, {}, SizeOf, now_);
    Drain();
    while (!bytes_.empty()) {
      Act();
      Drain();
    }
    counts_.aborted += machine_.dead();
    machine_.Lose(absl::UnavailableError("over"));
    Drain();
    for (const auto& [sequence, scatter] : to_finish_) {
      --scattering_[scatter.lease_id];
      machine_.Scattered(sequence, absl::OkStatus(), now_);
    }
    Drain();
    CHECK_EQ(ended_.size(), kLeases) << "a lease did not end with its pair";
    CHECK_EQ(machine_.open_leases(), 0u);
  }

 private:
  static Receiver::Options Options() {
    Receiver::Options options;
    options.max_piece_bytes = 4096;
    return options;
  }

  void Act() {
    v1::SenderMessage message;
    message.set_epoch(bytes_.Below(32) == 0 ? bytes_.Byte() : kEpoch);
    const uint64_t lease = bytes_.Near(1 + uint64_t(bytes_.Below(int(kLeases))));
    switch (bytes_.Below(12)) {
      case 0:
        if (!message.ParseFromString(bytes_.Take(bytes_.Byte()))) return;
        break;
      case 1:
      case 2:
      case 3: {
        v1::Ready& ready = *message.mutable_ready();
        ready.set_lease_id(lease);
        *ready.mutable_piece() = SomePiece(bytes_, announced_[lease]);
        const absl::StatusOr<int64_t> size = SizeOf(ready.piece());
        ready.set_bytes(int64_t(bytes_.Near(size.ok() ? uint64_t(*size) : 0)));
        ready.set_piece_index(uint32_t(bytes_.Near(announced_[lease])));
        break;
      }
      case 4:
      case 5:
      case 6: {
        v1::Data& data = *message.mutable_data();
        data.set_sequence(bytes_.Near(next_data_));
        const auto post = posts_.find(data.sequence());
        data.set_bytes(int64_t(bytes_.Near(post == posts_.end() ? 0 : uint64_t(post->second))));
        data.set_dropped(bytes_.Below(16) == 0);
        break;
      }
      case 7:
        message.mutable_commit()->set_lease_id(lease);
        message.mutable_commit()->set_num_pieces(uint32_t(bytes_.Near(announced_[lease])));
        break;
      case 8:
        return Arrive(bytes_.Near(next_arrival_));
      case 9:
        return Arrive(next_arrival_);
      case 10:
        switch (bytes_.Below(4)) {
          case 0:
            return machine_.Tick(now_ += absl::Milliseconds(bytes_.Byte() * 20));
          case 1:
            return machine_.Forget(lease, absl::CancelledError("client"), now_);
          case 2:
            message.mutable_cancel()->set_lease_id(lease);
            break;
          default:
            return FinishOne();
        }
        break;
      default:
        message.mutable_ping()->set_token(bytes_.Byte());
    }
    machine_.OnMessage(message, now_);
    if (machine_.dead() || message.epoch() != kEpoch) return;
    if (message.has_ready() && !ended_.contains(message.ready().lease_id())) announced_[message.ready().lease_id()]++;
    if (message.has_data()) next_data_ = message.data().sequence() + 1;
  }

  void Arrive(uint64_t sequence) {
    machine_.Arrived(sequence, now_);
    next_arrival_ = sequence + 1;
  }

  void FinishOne() {
    if (to_finish_.empty()) return;
    const auto [sequence, scatter] = *to_finish_.begin();
    to_finish_.erase(to_finish_.begin());
    const bool good = bytes_.Below(8) != 0;
    if (good) {
      landed_[scatter.lease_id] += *SizeOf(scatter.piece);
      ++landed_pieces_[scatter.lease_id];
      for (int block = scatter.piece.block_begin(); block < scatter.piece.block_end(); ++block) {
        for (int layer = scatter.piece.layer_begin(); layer < scatter.piece.layer_end(); ++layer) {
          for (int head = scatter.piece.head_begin(); head < scatter.piece.head_end(); ++head) {
            twice_[scatter.lease_id] |= !cells_[scatter.lease_id].insert({block, layer, head}).second;
          }
        }
      }
    }
    --scattering_[scatter.lease_id];
    machine_.Scattered(sequence, good ? absl::OkStatus() : absl::DataLossError("checksum"), now_);
  }

  void Drain() {
    Receiver::Outbox outbox = machine_.Take();
    for (const Receiver::Post& post : outbox.posts) {
      CHECK_LE(post.bytes, 4096) << "more than a piece may have";
      posts_[post.sequence] = post.bytes;
    }
    for (const Receiver::Scatter& scatter : outbox.scatters) {
      CHECK(SizeOf(scatter.piece).ok()) << "scattered outside the lease";
      CHECK(!ended_.contains(scatter.lease_id)) << "scattered after the end";
      CHECK(posts_.contains(scatter.sequence));
      ++counts_.scattered;
      ++scattering_[scatter.lease_id];
      to_finish_[scatter.sequence] = scatter;
    }
    for (const Receiver::End& end : outbox.ends) {
      CHECK(ended_.insert(end.lease_id).second) << "ended twice";
      CHECK_EQ(scattering_[end.lease_id], 0) << "ended while a copy was under way";
      if (end.status.ok()) {
        CHECK_EQ(end.bytes, landed_[end.lease_id]);
        CHECK_EQ(int(end.commit.num_pieces()), landed_pieces_[end.lease_id]) << "committed without all pieces";
        CHECK(!twice_[end.lease_id]) << "the same bytes counted twice";
      }
      ++(end.status.ok() ? counts_.committed : counts_.failed);
    }
  }

  Bytes bytes_;
  HostileCounts& counts_;
  Receiver machine_;
  absl::Time now_ = absl::UnixEpoch();
  std::map<uint64_t, uint64_t> announced_;  // pieces, by lease
  std::map<uint64_t, int64_t> posts_, landed_;
  std::map<uint64_t, int> scattering_, landed_pieces_;
  std::map<uint64_t, std::set<std::tuple<int, int, int>>> cells_;  // block, layer, head that have landed
  std::map<uint64_t, bool> twice_;
  std::map<uint64_t, Receiver::Scatter> to_finish_;
  std::set<uint64_t> ended_;
  uint64_t next_data_ = 0, next_arrival_ = 0;
};

class AgainstSender {
 public:
  AgainstSender(Bytes bytes, HostileCounts& counts) : bytes_(bytes), counts_(counts), machine_(kEpoch, {}) {}

  void Run() {
    for (uint64_t lease = 1; lease <= kLeases; ++lease) machine_.Open(lease, {}, now_);
    while (!bytes_.empty()) {
      Act();
      Drain();
    }
    counts_.aborted += machine_.dead();
    machine_.Lose(absl::UnavailableError("over"));
    Drain();
    CHECK_EQ(ended_.size(), kLeases) << "a transfer did not end with its pair";
  }

 private:
  void Act() {
    v1::ReceiverMessage message;
    message.set_epoch(bytes_.Below(32) == 0 ? bytes_.Byte() : kEpoch);
    const uint64_t lease = 1 + uint64_t(bytes_.Below(int(kLeases)));
    switch (bytes_.Below(10)) {
      case 0:
        if (!message.ParseFromString(bytes_.Take(bytes_.Byte()))) return;
        break;
      case 1:
        return AddPiece(lease);
      case 2:
        if (!committed_.insert(lease).second) return;
        return machine_.Commit(lease, {}, now_);
      case 3:
      case 4:
        // Mostly what is due, or the pair would never live long.
        if (granted_[lease] >= uint64_t(pieces_[lease]) && bytes_.Below(8) != 1) return AddPiece(lease);
        message.mutable_grant()->set_lease_id(bytes_.Near(lease));
        message.mutable_grant()->set_piece_index(uint32_t(bytes_.Near(granted_[lease])));
        message.mutable_grant()->set_sequence(bytes_.Near(next_));
        break;
      case 5:
      case 6:
        if (next_ack_ >= next_ && bytes_.Below(8) != 1) return;
        message.mutable_ack()->set_sequence(bytes_.Near(next_ack_));
        break;
      case 7:
        if (next_ack_ >= next_ && bytes_.Below(8) != 1) return;
        message.mutable_nack()->set_sequence(bytes_.Near(next_ack_));
        break;
      case 8:
        if ((next_ack_ < next_ || !committed_.contains(lease)) && bytes_.Below(8) != 1) return;
        message.mutable_done()->set_lease_id(bytes_.Near(lease));
        message.mutable_done()->mutable_error()->set_code(bytes_.Below(3) == 0 ? bytes_.Byte() : 0);
        break;
      default:
        if (bytes_.Below(3) == 0) return machine_.Cancel(lease, absl::CancelledError("client"), now_);
        return machine_.Tick(now_ += absl::Milliseconds(bytes_.Byte() * 20));
    }
    machine_.OnMessage(message, now_);
    if (machine_.dead() || message.epoch() != kEpoch) return;
    if (message.has_ack() || message.has_nack()) ++next_ack_;
  }

  void AddPiece(uint64_t lease) {
    if (committed_.contains(lease)) return;
    machine_.AddPiece(lease, {}, 100, now_);
    ++pieces_[lease];
  }

  void Drain() {
    Sender::Outbox outbox = machine_.Take();
    for (const Sender::Gather& gather : outbox.gathers) {
      CHECK_EQ(gather.sequence, next_) << "sent out of order";
      CHECK(gather.dropped || !ended_.contains(gather.lease_id)) << "read after the end";
      ++next_;
      ++granted_[gather.lease_id];
      ++counts_.gathered;
      machine_.Sent(gather.sequence, 0, now_);
    }
    for (const Sender::End& end : outbox.ends) {
      CHECK(ended_.insert(end.lease_id).second) << "ended twice";
      if (end.status.ok()) CHECK_EQ(end.pieces_acked, pieces_[end.lease_id]) << "done without all pieces";
      ++(end.status.ok() ? counts_.committed : counts_.failed);
    }
    if (!outbox.gathers.empty()) Drain();
  }

  Bytes bytes_;
  HostileCounts& counts_;
  Sender machine_;
  absl::Time now_ = absl::UnixEpoch();
  std::map<uint64_t, int> pieces_;
  std::map<uint64_t, uint64_t> granted_;
  std::set<uint64_t> committed_, ended_;
  uint64_t next_ = 0, next_ack_ = 0;
};

}  // namespace

void HostileSender(std::span<const uint8_t> bytes, HostileCounts& counts) {
  AgainstReceiver(Bytes(bytes), counts).Run();
}

void HostileReceiver(std::span<const uint8_t> bytes, HostileCounts& counts) {
  AgainstSender(Bytes(bytes), counts).Run();
}

void HostileFrames(std::span<const uint8_t> bytes, HostileCounts& counts) {
  Bytes draw(bytes);
  const std::string token(kTcpTokenBytes, 't');
  // What is granted: sequence -> its memory, of just its size, so that AddressSanitizer sees every byte beyond.
  std::map<uint64_t, std::vector<std::byte>> posts;
  std::set<uint64_t> begun, whole;
  for (uint64_t sequence = 0; sequence < 4; ++sequence) posts[sequence].resize(size_t(draw.Below(48)));
  TcpFrames frames(token, {.greet = [&](int) { return draw.Below(16) != 0; },
                           .begin = [&](uint64_t sequence, uint64_t size) -> absl::StatusOr<std::span<std::byte>> {
                             const auto post = posts.find(sequence);
                             if (post == posts.end() || post->second.size() != size || !begun.insert(sequence).second) {
                               return absl::InternalError("not granted");
                             }
                             return std::span(post->second);
                           },
                           .whole =
                               [&](uint64_t sequence) {
                                 CHECK(begun.contains(sequence) && whole.insert(sequence).second);
                                 ++counts.frames;
                               }});
  // What the peer sends: any bytes, or right ones with a mistake here and there; in steps of any size.
  std::string stream;
  if (draw.Below(8) != 0) {
    stream = token;
    stream.push_back(char(draw.Near(uint64_t(draw.Below(2)))));
    for (uint64_t sequence = 0; sequence < 4; ++sequence) {
      std::byte header[kTcpHeaderBytes];
      const uint64_t size = posts[sequence].size();
      WriteFrameHeader(draw.Near(sequence), draw.Near(size), header);
      stream.append(reinterpret_cast<const char*>(header), sizeof header);
      stream.append(size, 'x');
    }
  }
  stream += draw.Take(512);
  Bytes steps(bytes);
  size_t at = 0;
  while (at < stream.size() && !frames.wanted().empty()) {
    const std::span<std::byte> to = frames.wanted();
    const size_t n = std::min({to.size(), stream.size() - at, size_t(1 + steps.Below(40))});
    std::memcpy(to.data(), stream.data() + at, n);
    at += n;
    if (!frames.Got(n).ok()) {
      ++counts.refused;
      CHECK(frames.wanted().empty()) << "it reads on after an error";
    }
  }
  CHECK_LE(whole.size(), begun.size());
}

}  // namespace sluice::kvtransfer
