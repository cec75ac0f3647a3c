#include "kernels/cuda/nccl/communicator.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace sluice::kernels::cuda {
namespace {

constexpr absl::Duration kPoll = absl::Microseconds(20);

int64_t FreeDeviceBytes() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? int64_t(free) : 0;
}

}  // namespace

absl::StatusOr<ncclUniqueId> NewNcclId(const NcclLibrary& nccl) {
  ncclUniqueId id;
  const absl::Status status = NcclStatus(nccl, nccl.get_unique_id(&id), nullptr, "NCCL: an id for a communicator");
  if (!status.ok()) return status;
  return id;
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const NcclLibrary* nccl,
                                                                   CommunicatorOptions options) {
  std::unique_ptr<Communicator> made(new Communicator(nccl, std::move(options)));
  if (absl::Status status = made->Init(); !status.ok()) return status;
  return made;
}

Communicator::~Communicator() {
  Abort(absl::CancelledError(Named("it has ended")));
}

std::string Communicator::Named(absl::string_view what) const {
  return absl::StrCat(options_.purpose, ", rank ", options_.rank, " of ", options_.size, ": ", what);
}

absl::Status Communicator::Init() {
  const int64_t before = FreeDeviceBytes();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (options_.max_ctas > 0) {
    config.minCTAs = 1;
    config.maxCTAs = options_.max_ctas;
  }
  {
    absl::MutexLock lock(&mutex_);
    const ncclResult_t result = nccl_.init_rank(&comm_, options_.size, options_.id, options_.rank, &config);
    if (auto status = NcclStatus(nccl_, result, nullptr, Named("a communicator")); !status.ok())
      return FailLocked(status);
  }
  const absl::Status status = AwaitTaken(
      absl::StrCat("for the other ", options_.size - 1, " ranks to come to the communicator"), options_.timeout);
  if (status.ok()) device_bytes_ = before - FreeDeviceBytes();
  return status;
}

absl::Status Communicator::FailLocked(absl::Status why) {
  if (status_.ok()) status_ = std::move(why);
  // Takes the operations off their streams: from here on the handle is no more.
  if (comm_ != nullptr) (void)nccl_.abort(std::exchange(comm_, nullptr));
  return status_;
}

absl::Status Communicator::CheckLocked(absl::string_view what, ncclResult_t* state) {
  if (!status_.ok()) return status_;
  const ncclResult_t asked = nccl_.get_async_error(comm_, state);
  const ncclResult_t bad = asked != ncclSuccess ? asked : *state;
  if (auto status = NcclStatus(nccl_, bad, comm_, Named(what)); !status.ok()) return FailLocked(status);
  if (!options_.peers) return absl::OkStatus();
  if (const absl::Status lost = options_.peers(); !lost.ok()) {
    return FailLocked(absl::Status(lost.code(), Named(absl::StrCat(what, ": ", lost.message()))));
  }
  return absl::OkStatus();
}

absl::Status Communicator::AwaitTaken(absl::string_view what, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      ncclResult_t state = ncclSuccess;
      if (absl::Status status = CheckLocked(absl::StrCat("waiting ", what), &state); !status.ok()) return status;
      if (state == ncclSuccess) return absl::OkStatus();
      if (absl::Now() > end) {
        const char* const last = nccl_.get_last_error(comm_);
        return FailLocked(absl::DeadlineExceededError(
            absl::StrCat(Named("waited "), absl::FormatDuration(timeout), " ", what,
                         last != nullptr && *last != '\0' ? absl::StrCat(" (", last, ")") : "")));
      }
    }
    absl::SleepFor(kPoll);
  }
}

absl::Status Communicator::Issue(absl::string_view what,
                                 absl::FunctionRef<ncclResult_t(const NcclLibrary&, ncclComm_t)> calls) {
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    ncclResult_t result = nccl_.group_start();
    if (result == ncclSuccess) {
      result = calls(nccl_, comm_);
      const ncclResult_t ended = nccl_.group_end();  // always, or the thread stays in the group
      if (result == ncclSuccess || result == ncclInProgress) result = ended;
    }
    if (auto status = NcclStatus(nccl_, result, comm_, Named(what)); !status.ok()) return FailLocked(status);
  }
  return AwaitTaken(absl::StrCat("for NCCL to take ", what), options_.timeout);
}

absl::Status Communicator::Check() {
  absl::MutexLock lock(&mutex_);
  ncclResult_t state = ncclSuccess;
  return CheckLocked("what was issued", &state);
}

absl::Status Communicator::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

void Communicator::Abort(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  (void)FailLocked(why);
}

absl::Status Communicator::Finish(absl::Duration timeout) {
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    const ncclResult_t result = nccl_.finalize(comm_);
    if (auto status = NcclStatus(nccl_, result, comm_, Named("its end")); !status.ok()) return FailLocked(status);
  }
  if (absl::Status status = AwaitTaken("for all that was issued to be done", timeout); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  const ncclResult_t result = nccl_.destroy(std::exchange(comm_, nullptr));
  status_ = absl::CancelledError(Named("it has ended"));
  return NcclStatus(nccl_, result, nullptr, Named("its end"));
}

}  // namespace sluice::kernels::cuda
