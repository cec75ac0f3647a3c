#include "kernels/cuda/transfer/nccl_pipe.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/nccl/communicator.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kMostBlocks = 2;  // of the GPU, and as many of NCCL's channels with their buffers
constexpr absl::Duration kPoll = absl::Microseconds(50);  // while bytes are under way
constexpr absl::Duration kLook = absl::Milliseconds(20);  // else: the time to notice a lost peer

// Lock order: mutex_ is a leaf; callbacks are called without it.
class NcclPipe final : public DevicePipe {
 public:
  NcclPipe(const Device& gpu, const NcclLibrary& nccl, DevicePipeOptions options)
      : gpu_(gpu), nccl_(nccl), options_(std::move(options)), thread_([this] { Run(); }) {}

  ~NcclPipe() override {
    Fail(absl::CancelledError("the pipe was closed"));
    thread_.join();
  }

  bool ready() const override {
    absl::MutexLock lock(&mutex_);
    return ready_;
  }

  void Queue(std::span<std::byte> bytes) override {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) queued_.push_back(bytes);
  }

  absl::Status status() const override {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  void Fail(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = why;
  }

  // This end was closed, or the other one is lost.
  absl::Status Ended() const {
    if (absl::Status own = status(); !own.ok()) return own;
    return options_.peer ? options_.peer() : absl::OkStatus();
  }

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queued_.empty() || !status_.ok(); }

  void Run() {
    absl::Status end = options_.meet ? options_.meet() : absl::OkStatus();
    if (end.ok()) end = Meet();
    while (end.ok()) end = Turn();
    Fail(end);
    // The other end may be heard of first, and then this would be the pair's reason for nobody.
    if (!absl::IsCancelled(end)) LOG(WARNING) << "the NCCL pipe has ended: " << end.message();
    // The stream's work ends by the abort, if not by itself: then nothing touches the bytes any more.
    if (communicator_ != nullptr) communicator_->Abort(end);
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    communicator_.reset();
    for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    for (const UnderWay& u : under_way_) (void)cudaEventDestroy(u.event);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  absl::Status Meet() {
    if (absl::Status status = gpu_.MakeCurrent(); !status.ok()) return status;
    const cudaError_t error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (absl::Status status = ToStatus(error, options_.purpose); !status.ok()) return status;
    CommunicatorOptions wanted;
    wanted.purpose = options_.purpose;
    if (options_.id.size() != sizeof(wanted.id.internal)) {
      return absl::InvalidArgumentError(absl::StrCat(options_.purpose, ": this is no id of NCCL's"));
    }
    std::memcpy(wanted.id.internal, options_.id.data(), options_.id.size());
    wanted.rank = options_.sends ? 1 : 0;
    wanted.size = 2;
    wanted.timeout = options_.meeting_timeout;
    wanted.max_ctas = kMostBlocks;
    wanted.peers = [this] { return Ended(); };
    auto made = Communicator::Create(&nccl_, std::move(wanted));
    if (!made.ok()) return made.status();
    communicator_ = *std::move(made);
    LOG(INFO) << communicator_->Named(
        absl::StrCat("met; ", communicator_->device_bytes(), " bytes of the GPU's memory"));
    absl::MutexLock lock(&mutex_);
    ready_ = true;
    return absl::OkStatus();
  }

  // Issues all that is queued, finishes what is through, sleeps a moment.
  absl::Status Turn() {
    std::deque<std::span<std::byte>> fresh;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &NcclPipe::HasWork), under_way_.empty() ? kLook : kPoll);
      fresh.swap(queued_);
    }
    for (const std::span<std::byte> bytes : fresh) {
      if (absl::Status status = Issue(bytes); !status.ok()) return status;
    }
    if (absl::Status status = communicator_->Check(); !status.ok()) return status;
    return FinishDone();
  }

  absl::Status Issue(std::span<std::byte> bytes) {
    if (!bytes.empty()) {
      const absl::Status status = communicator_->Issue(
          options_.sends ? "sending KV" : "receiving KV", [&](const NcclLibrary& nccl, ncclComm_t comm) {
            return options_.sends ? nccl.send(bytes.data(), bytes.size(), ncclUint8, 0, comm, stream_)
                                  : nccl.recv(bytes.data(), bytes.size(), ncclUint8, 1, comm, stream_);
          });
      if (!status.ok()) return status;
    }
    cudaEvent_t event = nullptr;
    if (!events_.empty()) {
      event = events_.back();
      events_.pop_back();
    } else if (auto status = ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), options_.purpose);
               !status.ok()) {
      return status;
    }
    if (under_way_.empty()) progress_ = absl::Now();
    under_way_.push_back({event, bytes.size()});
    return ToStatus(cudaEventRecord(event, stream_), options_.purpose);
  }

  absl::Status FinishDone() {
    while (!under_way_.empty()) {
      const cudaError_t state = cudaEventQuery(under_way_.front().event);
      if (state == cudaErrorNotReady) break;
      if (absl::Status status = ToStatus(state, options_.purpose); !status.ok()) return status;
      // An abort takes operations off the stream as if they were done.
      if (absl::Status status = communicator_->Check(); !status.ok()) return status;
      events_.push_back(under_way_.front().event);
      under_way_.pop_front();
      progress_ = absl::Now();
      options_.on_done(done_++);
    }
    if (under_way_.empty() || absl::Now() - progress_ < options_.progress_timeout) return absl::OkStatus();
    return absl::DeadlineExceededError(communicator_->Named(absl::StrCat(
        under_way_.front().bytes, " bytes are stuck since ", absl::FormatDuration(absl::Now() - progress_))));
  }

  struct UnderWay {
    cudaEvent_t event;
    size_t bytes;
  };

  const Device& gpu_;
  const NcclLibrary& nccl_;
  const DevicePipeOptions options_;
  mutable absl::Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::span<std::byte>> queued_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // Of the thread.
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Communicator> communicator_;
  std::deque<UnderWay> under_way_;
  std::vector<cudaEvent_t> events_;  // to be used again
  uint64_t done_ = 0;
  absl::Time progress_;
  std::thread thread_;  // last: everything above is there before it runs
};

}  // namespace

absl::StatusOr<std::unique_ptr<DevicePipe>> NewNcclPipe(const Device& gpu, const NcclLibrary& nccl,
                                                        DevicePipeOptions options) {
  return std::make_unique<NcclPipe>(gpu, nccl, std::move(options));
}

}  // namespace sluice::kernels::cuda
