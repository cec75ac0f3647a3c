// Ranks that exchange over NCCL: one communicator of this process's GPU with those of others, made, watched and ended
// under deadlines of our own, since NCCL has none.
//
// Promises: no call here waits longer than the time it was given, whatever the other ranks do. The first failure stays:
// every later call returns it at once, with the communicator's purpose, this rank and what it waited for. Abort frees
// the streams of what was issued: what lies on them ends, its results being undefined.
//
// Threads: any, one at a time inside; Abort and status() at any moment. One thread issues everything of a GPU, over all
// its communicators, and all ranks issue in the same order: NCCL's kernels hold the GPU until their peers have come.
//
// CUDA graphs that recorded its operations are destroyed before it. Whether an operation is recorded is the same on all
// its ranks.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/cuda/nccl/nccl_library.h"

namespace sluice::kernels::cuda {

// What the first rank draws and all others are told, however they are.
absl::StatusOr<ncclUniqueId> NewNcclId(const NcclLibrary& nccl);

struct CommunicatorOptions {
  std::string purpose;  // opens every message: "tensor parallelism"
  ncclUniqueId id = {};
  int rank = 0, size = 1;
  absl::Duration timeout = absl::Seconds(30);  // for all ranks to come, and for a call to be taken
  // Blocks of a kernel: as many SMs are taken while it runs, and as many channels have buffers in the GPU's memory
  // (about 6 MiB each and peer). 0: NCCL's choice.
  int max_ctas = 0;
  // Not OK: a rank is known to be lost. NCCL sees a dead peer only behind a socket, not over NVLink or shared memory.
  std::function<absl::Status()> peers;
};

class Communicator {
 public:
  // On the thread's current device. DEADLINE_EXCEEDED if not all ranks come in time.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const NcclLibrary* nccl, CommunicatorOptions options);

  // Aborts what Finish has not ended. REQUIRES: no other call.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  // "tensor parallelism, rank 1 of 2: " and what.
  std::string Named(absl::string_view what) const;

  // What the GPU had less of after the creation: about what the communicator took (others may use the GPU meanwhile).
  // The buffers of a connection come with its first use.
  int64_t device_bytes() const { return device_bytes_; }

  // Issues what `calls` does, as one group, and waits until it lies on its streams, not until it is done: a call that
  // is not blocking comes there a little later. `what` says it in errors.
  absl::Status Issue(absl::string_view what, absl::FunctionRef<ncclResult_t(const NcclLibrary&, ncclComm_t)> calls);

  // OK, or the first failure: of a call, of Abort, or what NCCL or `peers` have found since. Then it has aborted.
  absl::Status Check();
  absl::Status status() const;

  // Gives everything up. The first reason stays.
  void Abort(const absl::Status& why);

  // The end in order: waits until all that was issued is done and the others know. Aborts if that takes longer.
  absl::Status Finish(absl::Duration timeout);

 private:
  Communicator(const NcclLibrary* nccl, CommunicatorOptions options) : nccl_(*nccl), options_(std::move(options)) {}
  absl::Status Init();
  absl::Status FailLocked(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLocked(absl::string_view what, ncclResult_t* state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until NCCL is no longer busy with the last call.
  absl::Status AwaitTaken(absl::string_view what, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  const NcclLibrary& nccl_;
  const CommunicatorOptions options_;
  int64_t device_bytes_ = 0;
  mutable absl::Mutex mutex_;  // NCCL's calls are not thread-safe, and none may follow an abort
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::kernels::cuda
