#include "router/testing/fake_pool.h"

#include <algorithm>

#include "absl/status/status.h"

namespace sluice::router::testing {
namespace {

pb::ErrorInfo Error(absl::StatusCode code, pb::ErrorReason reason, const std::string& message) {
  pb::ErrorInfo error;
  error.set_code(int(code));
  error.set_reason(reason);
  error.set_message(message);
  return error;
}

pb::ErrorInfo Injected() {
  return Error(absl::StatusCode::kInternal, pb::INTERNAL_ERROR, "injected");
}
pb::ErrorInfo Cancelled() {
  return Error(absl::StatusCode::kCancelled, pb::CANCELLED_BY_CLIENT, "cancelled");
}
pb::ErrorInfo Broken() {
  return Error(absl::StatusCode::kUnavailable, pb::TRANSFER_FAILED, "the pair broke");
}

class Prefill final : public FakePoolWorker {
 public:
  using FakePoolWorker::FakePoolWorker;

  pb::Role role() const override { return pb::ROLE_PREFILL; }
  size_t jobs() const override { return jobs_.size(); }

  void Handle(const pb::RouterMessage& message, absl::Time) override {
    if (message.has_prefill()) return OnPrefill(message.prefill());
    if (!message.has_cancel()) return;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].deaf || !Same(jobs_[i].key, message.cancel().key())) continue;
      return Stop(i, Cancelled(), true);
    }
  }

  void OnTransfer(const TransferMessage& message) override {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      if (job.decode != message.from || job.lease != message.lease) continue;
      const bool good = message.error.code() == 0;
      if (!job.deaf && good && !job.leaving) Out(job.key).mutable_progress()->add_events()->set_name("transfer_done");
      if (!job.deaf && (!good || job.leaving)) Fail(job.key, job.leaving ? job.words : message.error);
      return End(i);
    }
  }

  void OnPeerGone(uint64_t peer) override {
    const std::vector<Job> jobs = jobs_;
    for (const Job& job : jobs) {
      if (job.decode == peer) OnTransfer({TransferMessage::kDone, peer, incarnation_, job.lease, Broken()});
    }
  }

  void OnStreamEnd() override {
    for (size_t i = jobs_.size(); i-- > 0;) {
      jobs_[i].deaf = true;
      if (!jobs_[i].leaving) Stop(i, Cancelled(), false);
    }
    out_.Clear();
  }

  void Step(absl::Time) override {
    int budget = 64;
    for (size_t i = 0; i < jobs_.size();) {
      Job& job = jobs_[i];
      const uint64_t id = job.id;
      if (!job.leaving && job.computed < job.tokens && budget > 0) Compute(i, budget);
      if (i < jobs_.size() && jobs_[i].id == id) ++i;
    }
  }

 private:
  struct Job {
    uint64_t id = 0;
    pb::RequestKey key;
    uint64_t decode = 0;  // 0: nothing is handed over
    uint64_t lease = 0;
    int tokens = 0;
    int computed = 0;
    int first = 0;  // index of the token that it gives
    int max_tokens = 0;
    int64_t blocks = 0;
    bool leaving = false;
    bool deaf = false;  // nobody is told anything any more
    pb::ErrorInfo words;
  };

  static bool Same(const pb::RequestKey& a, const pb::RequestKey& b) {
    return a.request_id() == b.request_id() && a.attempt() == b.attempt();
  }

  int64_t Waiting() const override {
    int64_t tokens = 0;
    for (const Job& job : jobs_) tokens += job.leaving ? 0 : job.tokens - job.computed;
    return tokens;
  }

  void OnPrefill(const pb::Prefill& prefill) {
    const int tokens = prefill.sequence().tokens_size();
    const int64_t blocks = Blocks(tokens);
    if (blocks > free_ || pool_.OneIn(pool_.mishaps().refuse)) return Refuse(prefill.key());
    free_ -= blocks;
    jobs_.push_back({.id = ++next_id_,
                     .key = prefill.key(),
                     .decode = prefill.lease().decode_incarnation(),
                     .lease = prefill.lease().lease_id(),
                     .tokens = tokens,
                     .first = tokens - prefill.sequence().num_prompt_tokens(),
                     .max_tokens = prefill.sequence().sampling().max_tokens(),
                     .blocks = blocks});
    if (prefill.has_lease() && pool_.Find(prefill.lease().decode_incarnation()) == nullptr) {
      OnPeerGone(prefill.lease().decode_incarnation());
    }
  }

  void Compute(size_t i, int& budget) {
    Job& job = jobs_[i];
    if (pool_.OneIn(pool_.mishaps().fail)) return Stop(i, Injected(), true);
    const int chunk = std::min({budget, 16, job.tokens - job.computed});
    budget -= chunk;
    job.computed += chunk;
    pb::TimelineEvent& entry = *Out(job.key).mutable_progress()->add_events();
    entry.set_name("prefill_chunk");
    entry.set_amount(job.computed);
    if (job.computed == job.tokens) FirstToken(i);
  }

  void FirstToken(size_t i) {
    Job& job = jobs_[i];
    pb::Tokens& tokens = *Out(job.key).mutable_tokens();
    tokens.set_first_index(job.first);
    tokens.add_token_ids(job.first);
    const bool stops = job.first == 0 && StopsAtFirst(job.key.request_id());
    if (!stops && job.decode != 0) {
      return pool_.Send({TransferMessage::kCommit, incarnation_, job.decode, job.lease, {}});
    }
    Finish(job.key, stops ? pb::FINISH_REASON_STOP : pb::FINISH_REASON_LENGTH);
    job.deaf = true;
    Stop(i, Cancelled(), false);
  }

  void Stop(size_t i, const pb::ErrorInfo& why, bool words) {
    Job& job = jobs_[i];
    job.deaf = job.deaf || !words;
    if (job.decode == 0) {
      if (!job.deaf) Fail(job.key, why);
      return End(i);
    }
    if (job.leaving) return;
    job.leaving = true;
    job.words = why;
    pool_.Send({TransferMessage::kCancel, incarnation_, job.decode, job.lease, why});
  }

  void End(size_t i) {
    free_ += jobs_[i].blocks;
    jobs_.erase(jobs_.begin() + std::ptrdiff_t(i));
  }

  std::vector<Job> jobs_;
  uint64_t next_id_ = 0;
};

// Also `both`.
class Decode final : public FakePoolWorker {
 public:
  Decode(FakePool& pool, uint64_t incarnation, int64_t blocks, pb::Role role)
      : FakePoolWorker(pool, incarnation, blocks), role_(role) {}

  pb::Role role() const override { return role_; }
  size_t jobs() const override { return leases_.size(); }

  void Handle(const pb::RouterMessage& message, absl::Time now) override {
    if (message.has_reserve()) return OnReserve(message.reserve(), now);
    for (uint64_t id : message.renew().lease_ids()) {
      if (auto it = leases_.find(id); it != leases_.end()) it->second.expires = now + kLeaseTerm;
    }
    const pb::RequestKey& key = message.has_cancel() ? message.cancel().key() : message.release().key();
    for (const auto& [id, lease] : leases_) {
      if (lease.state == Lease::kLeaving || lease.key.request_id() != key.request_id() ||
          lease.key.attempt() != key.attempt()) {
        continue;
      }
      if (message.has_release() && message.release().lease_id() != id) continue;
      return Stop(id, Cancelled(), message.has_cancel());
    }
  }

  void OnTransfer(const TransferMessage& message) override {
    auto it = leases_.find(message.lease);
    const auto done = [&](const pb::ErrorInfo& error) {
      pool_.Send({TransferMessage::kDone, incarnation_, message.from, message.lease, error});
    };
    if (it == leases_.end() || it->second.state == Lease::kDecoding) {
      return done(Error(absl::StatusCode::kNotFound, pb::LEASE_UNKNOWN, "no such lease"));
    }
    Lease& lease = it->second;
    if (lease.state == Lease::kLeaving) {
      done(lease.words);
      return End(message.lease, lease.says ? &lease.words : nullptr);
    }
    if (message.kind == TransferMessage::kCancel) {
      done(message.error);
      return End(message.lease, &message.error);
    }
    done({});
    lease.state = Lease::kDecoding;
    pb::Committed& committed = *Out(lease.key).mutable_committed();
    committed.set_lease_id(message.lease);
  }

  void OnPeerGone(uint64_t peer) override {
    std::vector<uint64_t> ids;
    for (const auto& [id, lease] : leases_) {
      if (lease.prefill == peer && lease.state != Lease::kDecoding) ids.push_back(id);
    }
    for (uint64_t id : ids) {
      const Lease& lease = leases_.at(id);
      const pb::ErrorInfo broken = lease.state == Lease::kLeaving ? lease.words : Broken();
      End(id, lease.state == Lease::kLeaving && !lease.says ? nullptr : &broken);
    }
  }

  void OnStreamEnd() override {
    std::vector<uint64_t> ids;
    for (const auto& [id, lease] : leases_) ids.push_back(id);
    for (uint64_t id : ids) {
      leases_.at(id).says = false;
      Stop(id, Cancelled(), false);
    }
    out_.Clear();
  }

  void Step(absl::Time now) override {
    std::vector<uint64_t> ids;
    for (const auto& [id, lease] : leases_) ids.push_back(id);
    for (uint64_t id : ids) {
      Lease& lease = leases_.at(id);
      if (lease.state == Lease::kLeaving) {
        // Nothing writes to its blocks any more, sooner or later.
        if (pool_.OneIn(3)) {
          pool_.Send({TransferMessage::kDone, incarnation_, lease.prefill, id, lease.words});
          End(id, lease.says ? &lease.words : nullptr);
        }
      } else if (now >= lease.expires) {
        Stop(id, Error(absl::StatusCode::kUnavailable, pb::LEASE_EXPIRED, "not renewed"), true);
      } else if (pool_.OneIn(pool_.mishaps().fail)) {
        Stop(id, Injected(), true);
      } else if (lease.state == Lease::kDecoding) {
        Compute(id);
      }
    }
  }

 private:
  struct Lease {
    enum State { kAwaiting, kDecoding, kLeaving };
    State state = kAwaiting;
    pb::RequestKey key;
    uint64_t prefill = 0;
    int64_t blocks = 0;
    int next = 0;
    int max_tokens = 0;
    absl::Time expires;
    bool says = false;
    pb::ErrorInfo words;
  };

  void OnReserve(const pb::Reserve& reserve, absl::Time now) {
    const int max_tokens = reserve.sequence().sampling().max_tokens();
    const int first = reserve.sequence().tokens_size() - reserve.sequence().num_prompt_tokens();
    const int64_t blocks = Blocks(reserve.sequence().num_prompt_tokens() + max_tokens);
    if (blocks > free_ || pool_.OneIn(pool_.mishaps().refuse)) return Refuse(reserve.key());
    free_ -= blocks;
    const uint64_t id = ++next_lease_;
    Lease& lease = leases_[id];
    lease.key = reserve.key();
    lease.blocks = blocks;
    lease.next = first;
    lease.max_tokens = max_tokens;
    lease.expires = now + kLeaseTerm;
    pb::LeaseGranted& granted = *Out(reserve.key()).mutable_lease_granted();
    granted.set_lease_id(id);
    granted.set_lease_ms(int(absl::ToInt64Milliseconds(kLeaseTerm)));
    if (reserve.compute_prompt()) {
      lease.state = Lease::kDecoding;
      return;
    }
    ++lease.next;
    lease.prefill = reserve.prefill_incarnation();
    if (pool_.Find(lease.prefill) == nullptr) OnPeerGone(lease.prefill);
  }

  void Compute(uint64_t id) {
    Lease& lease = leases_.at(id);
    const bool stops = lease.next == 0 && StopsAtFirst(lease.key.request_id());
    pb::Tokens& tokens = *Out(lease.key).mutable_tokens();
    // Now and then some are repeated.
    const int first = lease.next > 0 && pool_.OneIn(8) ? lease.next - 1 : lease.next;
    tokens.set_first_index(first);
    for (int index = first; index <= lease.next; ++index) tokens.add_token_ids(index);
    if (++lease.next < lease.max_tokens && !stops) return;
    Finish(lease.key, stops ? pb::FINISH_REASON_STOP : pb::FINISH_REASON_LENGTH);
    End(id, nullptr);
  }

  void Stop(uint64_t id, const pb::ErrorInfo& why, bool words) {
    Lease& lease = leases_.at(id);
    if (lease.state == Lease::kLeaving) return;
    if (lease.state == Lease::kDecoding) return End(id, words ? &why : nullptr);
    lease.state = Lease::kLeaving;
    lease.says = words;
    lease.words = why;
  }

  void End(uint64_t id, const pb::ErrorInfo* words) {
    const Lease& lease = leases_.at(id);
    if (words != nullptr) Fail(lease.key, *words);
    free_ += lease.blocks;
    leases_.erase(id);
  }

  const pb::Role role_;
  std::map<uint64_t, Lease> leases_;
  uint64_t next_lease_ = 0;
};

}  // namespace

pb::WorkerReport FakePoolWorker::Report() {
  pb::WorkerReport report;
  report.set_sequence(++sequence_);
  report.set_blocks_free(free_);
  report.set_running(int(jobs()));
  report.set_waiting_tokens(Waiting());
  for (uint64_t peer : peers_) {
    pb::PairStatus& pair = *report.add_pairs();
    pair.set_decode_incarnation(peer);
    pair.set_up(pool_.Find(peer) != nullptr);
  }
  return report;
}

pb::WorkerEvent& FakePoolWorker::Out(const pb::RequestKey& key) {
  pb::WorkerEvent& event = *out_.add_events();
  *event.mutable_key() = key;
  return event;
}

void FakePoolWorker::Refuse(const pb::RequestKey& key) {
  pb::Refused& refused = *Out(key).mutable_refused();
  refused.mutable_error()->set_reason(pb::NO_BLOCKS);
  refused.set_blocks_free(free_);
}

void FakePoolWorker::Finish(const pb::RequestKey& key, pb::FinishReason reason) {
  pb::Finished& finished = *Out(key).mutable_finished();
  finished.set_reason(reason);
  finished.set_last(true);
}

FakePoolWorker& FakePool::Start(pb::Role role, uint64_t incarnation, int64_t blocks) {
  std::unique_ptr<FakePoolWorker>& worker = workers_[incarnation];
  if (role == pb::ROLE_PREFILL) {
    worker = std::make_unique<Prefill>(*this, incarnation, blocks);
  } else {
    worker = std::make_unique<Decode>(*this, incarnation, blocks, role);
  }
  return *worker;
}

void FakePool::Kill(uint64_t incarnation) {
  if (workers_.erase(incarnation) == 0) return;
  for (const auto& [other, worker] : workers_) BreakPair(other, incarnation);
}

FakePoolWorker* FakePool::Find(uint64_t incarnation) {
  auto it = workers_.find(incarnation);
  return it == workers_.end() ? nullptr : it->second.get();
}

void FakePool::BreakPair(uint64_t a, uint64_t b) {
  channels_.erase({a, b});
  channels_.erase({b, a});
  if (FakePoolWorker* worker = Find(a); worker != nullptr) worker->OnPeerGone(b);
  if (FakePoolWorker* worker = Find(b); worker != nullptr) worker->OnPeerGone(a);
  // What one of them said about it just now has nobody to go to.
  channels_.erase({a, b});
  channels_.erase({b, a});
}

void FakePool::Deliver() {
  std::vector<std::pair<uint64_t, uint64_t>> keys;
  for (const auto& [key, messages] : channels_) keys.push_back(key);
  for (const auto& key : keys) {
    while (channels_.contains(key) && !channels_[key].empty() && !OneIn(3)) {
      const TransferMessage message = std::move(channels_[key].front());
      channels_[key].pop_front();
      if (FakePoolWorker* worker = Find(message.to); worker != nullptr) worker->OnTransfer(message);
    }
  }
}

}  // namespace sluice::router::testing
