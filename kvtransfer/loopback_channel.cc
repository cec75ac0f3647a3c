#include "kvtransfer/loopback_channel.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"

namespace sluice::kvtransfer {
namespace {

// What both ends share. A buffer's address is stable from PostReceive to Release.
class Loopback {
 public:
  Loopback(const ChannelLimits& limits, ArrivalCallback on_arrival)
      : limits_(limits), on_arrival_(std::move(on_arrival)) {}

  absl::Status Post(uint64_t sequence, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    if (sequence != posted_ || bytes > limits_.max_piece_bytes || int(slots_.size()) >= limits_.window) {
      return absl::FailedPreconditionError(absl::StrFormat("receive %d of %d bytes can't be posted", sequence, bytes));
    }
    ++posted_;
    slots_[sequence].bytes.resize(bytes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    const auto it = slots_.find(sequence);
    if (sequence != sent_ || it == slots_.end() || it->second.bytes.size() != bytes) {
      return absl::FailedPreconditionError(absl::StrFormat("%d bytes of %d were not granted", bytes, sequence));
    }
    return std::span<std::byte>(it->second.bytes);
  }

  absl::Status Send(uint64_t sequence) {
    {
      absl::MutexLock lock(&mutex_);
      if (!status_.ok()) return status_;
      const auto it = slots_.find(sequence);
      if (sequence != sent_ || it == slots_.end()) {
        return absl::FailedPreconditionError(absl::StrFormat("send of %d, which was not granted", sequence));
      }
      ++sent_;
      it->second.arrived = true;
    }
    on_arrival_(sequence);
    return absl::OkStatus();
  }

  absl::StatusOr<std::span<const std::byte>> View(uint64_t sequence) {
    absl::MutexLock lock(&mutex_);
    const auto it = slots_.find(sequence);
    if (it == slots_.end() || !it->second.arrived) {
      return status_.ok() ? absl::NotFoundError("has not arrived") : status_;
    }
    return std::span<const std::byte>(it->second.bytes);
  }

  void Release(uint64_t sequence) {
    absl::MutexLock lock(&mutex_);
    slots_.erase(sequence);
  }

  absl::Status status() {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  void Close() {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = absl::UnavailableError("the channel was closed");
  }

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    bool arrived = false;
  };
  const ChannelLimits limits_;
  const ArrivalCallback on_arrival_;
  absl::Mutex mutex_;
  std::map<uint64_t, Slot> slots_;  // posted, not released
  uint64_t posted_ = 0, sent_ = 0;
  absl::Status status_;
};

class LoopbackSender : public SendChannel {
 public:
  explicit LoopbackSender(std::shared_ptr<Loopback> shared) : shared_(std::move(shared)) {}
  ~LoopbackSender() override { shared_->Close(); }
  absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) override {
    return shared_->Buffer(sequence, bytes);
  }
  absl::Status Send(uint64_t sequence) override { return shared_->Send(sequence); }
  absl::Status status() const override { return shared_->status(); }
  void Close() override { shared_->Close(); }

 private:
  std::shared_ptr<Loopback> shared_;
};

class LoopbackReceiver : public ReceiveChannel {
 public:
  explicit LoopbackReceiver(std::shared_ptr<Loopback> shared) : shared_(std::move(shared)) {}
  ~LoopbackReceiver() override { shared_->Close(); }
  absl::Status PostReceive(uint64_t sequence, size_t bytes) override { return shared_->Post(sequence, bytes); }
  absl::StatusOr<std::span<const std::byte>> View(uint64_t sequence) override { return shared_->View(sequence); }
  void Release(uint64_t sequence) override { shared_->Release(sequence); }
  absl::Status status() const override { return shared_->status(); }
  void Close() override { shared_->Close(); }

 private:
  std::shared_ptr<Loopback> shared_;
};

}  // namespace

LoopbackPair NewLoopbackChannel(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  auto shared = std::make_shared<Loopback>(limits, std::move(on_arrival));
  return {std::make_unique<LoopbackSender>(shared), std::make_unique<LoopbackReceiver>(shared)};
}

}  // namespace sluice::kvtransfer
