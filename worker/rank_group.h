// The other ranks of a worker that is an instance of several (--tp N): one process each, started and watched by rank 0,
// with one piece of memory that all of them share: the collective's buffers, and the KV pool or, where each rank's GPU
// has its own heads, boxes through which rank 0 moves those (rank_kv.h).
//
// Rank 0 is the worker that everyone sees: it plans, samples, talks to routers and moves KV. The others run the same
// program with two more flags and follow (engine/parallel/step_broadcast.h); they listen nowhere. A rank that ends
// unasked ends the instance: every wait for it fails at once, and `on_lost` is told. Ranks never outlive rank 0: the
// system kills them when it dies.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/parallel/shared_memory_collective.h"
#include "worker/options.h"
#include "worker/rank_kv.h"
#include "worker/shared_region.h"

namespace sluice::worker {

class RankGroup {
 public:
  // Starts ranks 1 to options.tp - 1 with the command line of this process. kv_bytes: of the pool that they share; 0:
  // they have their own. `on_lost` is called at most once, on a thread of the group's own.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Start(const WorkerOptions& options, size_t kv_bytes,
                                                          std::function<void(const absl::Status&)> on_lost);

  // Waits for the others to end, which they do when the engine has told them to; kills those that have not after two
  // seconds.
  ~RankGroup();

  engine::SharedMemoryCollective& collective() { return collective_; }
  std::byte* kv_memory() const;         // null where ranks have pools of their own
  std::span<RankKvBox> boxes() const;  // of ranks 1, 2, ..., then; else empty

  // From now on ranks may end: the engine is about to tell them to.
  void ExpectEnd() { leaving_ = true; }

  // Waits until every rank has its weights; UNAVAILABLE, naming the rank, if one ends instead.
  absl::Status AwaitReady();

  // A step's error, with the end of a rank's process as its reason where there is one: what ranks exchange may fail a
  // moment before that is noticed.
  absl::Status Explain(const absl::Status& error);

 private:
  struct Child {
    int rank;
    pid_t pid;
    int pidfd;
  };

  RankGroup(SharedRegion region, int ranks, bool own_pools, std::function<void(const absl::Status&)> on_lost);
  absl::Status Spawn(const WorkerOptions& options, int rank);
  void Watch();

  SharedRegion region_;
  const bool own_pools_;
  engine::SharedMemoryCollective collective_;
  const std::function<void(const absl::Status&)> on_lost_;
  std::vector<Child> children_;
  int stop_fd_ = -1;  // an eventfd that ends the watch
  std::atomic<bool> leaving_ = false;
  absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  std::thread watch_;
};

// The life of a rank but 0: ends with OK when rank 0 has told it to.
absl::Status RunFollowingRank(const WorkerOptions& options);

}  // namespace sluice::worker
