// Workers of every role, and the transfers between them, in one thread and from one seed: they obey the protocol as
// real workers do, and fail, refuse and lag at random. Nothing is computed: token i of every answer is i.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace sluice::router::testing {

namespace pb = ::sluice::v1;

inline constexpr int kBlockSize = 16;
inline constexpr absl::Duration kLeaseTerm = absl::Seconds(3);

inline int64_t Blocks(int64_t tokens) {
  return (tokens + kBlockSize - 1) / kBlockSize;
}

// What goes between a prefill and a decode worker about one lease; in order between any two workers.
struct TransferMessage {
  enum Kind { kCommit, kCancel, kDone };
  Kind kind = kDone;
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t lease = 0;
  pb::ErrorInfo error;  // of kCancel and kDone; code 0: committed
};

// How often things go wrong, in one of so many cases; 0: never.
struct Mishaps {
  int refuse = 16;
  int fail = 200;
};

class FakePool;

// What all roles have in common.
class FakePoolWorker {
 public:
  FakePoolWorker(FakePool& pool, uint64_t incarnation, int64_t blocks)
      : pool_(pool), incarnation_(incarnation), total_(blocks), free_(blocks) {}
  virtual ~FakePoolWorker() = default;

  virtual pb::Role role() const = 0;
  virtual void Handle(const pb::RouterMessage& message, absl::Time now) = 0;
  virtual void OnTransfer(const TransferMessage& message) = 0;
  virtual void Step(absl::Time now) = 0;
  virtual void OnStreamEnd() = 0;
  virtual size_t jobs() const = 0;
  virtual void OnPeerGone(uint64_t peer) = 0;  // the pair has broken

  uint64_t incarnation() const { return incarnation_; }
  bool idle() const { return jobs() == 0 && free_ == total_; }
  pb::WorkerMessage Take() { return std::exchange(out_, {}); }
  pb::WorkerReport Report();
  void SetPeers(std::vector<uint64_t> peers) { peers_ = std::move(peers); }

 protected:
  pb::WorkerEvent& Out(const pb::RequestKey& key);
  void Refuse(const pb::RequestKey& key);
  void Fail(const pb::RequestKey& key, const pb::ErrorInfo& error) {
    *Out(key).mutable_failed()->mutable_error() = error;
  }
  void Finish(const pb::RequestKey& key, pb::FinishReason reason);
  virtual int64_t Waiting() const { return 0; }

  FakePool& pool_;
  const uint64_t incarnation_;
  const int64_t total_;
  int64_t free_;
  pb::WorkerMessage out_;
  std::vector<uint64_t> peers_;

 private:
  uint64_t sequence_ = 0;
};

class FakePool {
 public:
  FakePool(std::mt19937_64& rng, const Mishaps& mishaps) : rng_(rng), mishaps_(mishaps) {}

  FakePoolWorker& Start(pb::Role role, uint64_t incarnation, int64_t blocks);
  void Kill(uint64_t incarnation);
  FakePoolWorker* Find(uint64_t incarnation);
  // Ends every transfer between the two with an error.
  void BreakPair(uint64_t a, uint64_t b);

  // Some of what is on the way between workers arrives.
  void Deliver();

  void Send(TransferMessage message) { channels_[{message.from, message.to}].push_back(std::move(message)); }
  bool OneIn(int n) { return n > 0 && rng_() % uint64_t(n) == 0; }
  const Mishaps& mishaps() const { return mishaps_; }
  void Calm() { mishaps_ = {0, 0}; }
  const std::map<uint64_t, std::unique_ptr<FakePoolWorker>>& workers() const { return workers_; }

 private:
  std::mt19937_64& rng_;
  Mishaps mishaps_;
  std::map<uint64_t, std::unique_ptr<FakePoolWorker>> workers_;
  std::map<std::pair<uint64_t, uint64_t>, std::deque<TransferMessage>> channels_;
};

// Whether a request ends with its first token, by a stop token; so that tests know it too.
inline bool StopsAtFirst(const std::string& request_id) {
  return std::hash<std::string>()(request_id) % 8 == 0;
}

}  // namespace sluice::router::testing
