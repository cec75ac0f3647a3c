// The latest report of a worker, for the threads that send it: the engine thread's figures and, of a prefill worker,
// the states of its pairs. Hands out the sequence numbers, so that of two reports the one with the higher number is
// never the older one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.pb.h"

namespace sluice::worker {

class ReportBoard {
 public:
  void Publish(v1::WorkerReport report) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    latest_ = std::move(report);
  }

  // The peers there are now; a new one is not up yet.
  void SetPeers(const std::set<uint64_t>& incarnations) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    std::erase_if(pairs_, [&](const auto& pair) { return !incarnations.contains(pair.first); });
    for (const uint64_t incarnation : incarnations) pairs_[incarnation].set_decode_incarnation(incarnation);
  }

  // No-op for one that is no peer any more.
  void SetPair(v1::PairStatus status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (auto it = pairs_.find(status.decode_incarnation()); it != pairs_.end()) it->second = std::move(status);
  }

  // What has flowed to or from its peers.
  void SetFlows(std::vector<v1::KvFlow> flows) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    flows_ = std::move(flows);
  }

  void SetStuck(bool stuck) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    stuck_ = stuck;
  }

  // A copy with its own number.
  v1::WorkerReport Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    v1::WorkerReport report = latest_;
    report.set_sequence(++sequence_);
    report.set_stuck(stuck_);
    for (const auto& [incarnation, status] : pairs_) *report.add_pairs() = status;
    for (const v1::KvFlow& flow : flows_) *report.add_kv_flows() = flow;
    return report;
  }

 private:
  absl::Mutex mutex_;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::WorkerReport latest_ ABSL_GUARDED_BY(mutex_);
  bool stuck_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, v1::PairStatus> pairs_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::KvFlow> flows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
