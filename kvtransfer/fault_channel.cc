#include "kvtransfer/fault_channel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

namespace sluice::kvtransfer {
namespace {

class FaultChannel : public SendChannel {
 public:
  FaultChannel(std::unique_ptr<SendChannel> channel, std::shared_ptr<FaultState> state)
      : channel_(std::move(channel)), state_(std::move(state)) {}

  bool ready() const override { return channel_->ready(); }

  absl::StatusOr<std::span<std::byte>> Buffer(uint64_t sequence, size_t bytes) override {
    if (!lost_) LetGo();
    // The real channel still waits for what was lost, or is held back.
    if (lost_ || !held_.empty()) {
      if (absl::Status s = status(); !s.ok()) return s;
      nowhere_.resize(bytes);
      buffer_ = nowhere_;
      device_ = nullptr;
      return buffer_;
    }
    auto buffer = channel_->Buffer(sequence, bytes);
    if (buffer.ok()) buffer_ = *buffer;
    device_ = channel_->device();
    return buffer;
  }

  // The checksum was taken from the buffer before this call.
  absl::Status Send(uint64_t sequence) override {
    const uint64_t piece = state_->pieces.fetch_add(1);
    const FaultPlan& plan = state_->plan;
    if (plan.fail.contains(piece)) {
      Note("failing", piece);
      return absl::UnavailableError("injected fault: send failed");
    }
    if (plan.stall.contains(piece)) stalled_ = true;
    if (stalled_ || plan.lose.contains(piece)) {
      Note("losing", piece);
      lost_ = true;
    }
    if (lost_) return absl::OkStatus();
    if (plan.corrupt.contains(piece) && !buffer_.empty()) {
      Note("corrupting", piece);
      if (absl::Status s = Corrupt(); !s.ok()) return s;
    }
    if (plan.delay.contains(piece)) {
      Note("delaying", piece);
      if (held_.empty()) let_go_at_ = absl::Now() + kFaultDelay;
    }
    if (plan.delay.contains(piece) || !held_.empty()) {
      return Hold(sequence);
    }
    const absl::Status sent = channel_->Send(sequence);
    if (!plan.duplicate.contains(piece) || !sent.ok()) return sent;
    Note("duplicating", piece);
    return channel_->Send(sequence);
  }

  kernels::DeviceLinks* device() const override { return device_; }

  absl::Status status() const override {
    LetGo();
    return late_.ok() ? channel_->status() : late_;
  }
  void Close() override { channel_->Close(); }

 private:
  struct Held {
    uint64_t sequence;
    std::vector<std::byte> bytes;
  };

  absl::Status Corrupt() {
    const std::span<std::byte> place = buffer_.subspan(buffer_.size() / 2, 1);
    std::byte byte = place[0];
    if (device_ == nullptr) {
      place[0] ^= std::byte(0x10);
      return absl::OkStatus();
    }
    if (absl::Status s = device_->Read(place, {&byte, 1}); !s.ok()) return s;
    byte ^= std::byte(0x10);
    return device_->Write({&byte, 1}, place);
  }

  absl::Status Hold(uint64_t sequence) {
    std::vector<std::byte> bytes(buffer_.size());
    if (device_ == nullptr) {
      std::copy(buffer_.begin(), buffer_.end(), bytes.begin());
    } else if (absl::Status s = device_->Read(buffer_, bytes); !s.ok()) {
      return s;
    }
    held_.push_back({sequence, std::move(bytes)});
    return absl::OkStatus();
  }

  absl::Status HandOver(const Held& held) const {
    const auto buffer = channel_->Buffer(held.sequence, held.bytes.size());
    if (!buffer.ok()) return buffer.status();
    if (channel_->device() == nullptr) {
      std::copy(held.bytes.begin(), held.bytes.end(), buffer->begin());
    } else if (absl::Status s = channel_->device()->Write(held.bytes, *buffer); !s.ok()) {
      return s;
    }
    return channel_->Send(held.sequence);
  }

  // Once it is time. The place of the first one in the channel is taken already.
  void LetGo() const {
    if (held_.empty() || absl::Now() < let_go_at_) return;
    for (const Held& held : held_) {
      late_ = HandOver(held);
      if (!late_.ok()) break;
    }
    held_.clear();
  }

  void Note(const char* what, uint64_t piece) {
    state_->injected.fetch_add(1);
    LOG(WARNING) << "injected fault: " << what << " KV piece " << piece;
  }

  std::unique_ptr<SendChannel> channel_;
  std::shared_ptr<FaultState> state_;
  std::span<std::byte> buffer_;
  kernels::DeviceLinks* device_ = nullptr;  // of buffer_
  bool stalled_ = false;
  bool lost_ = false;
  std::vector<std::byte> nowhere_;
  // What is handed over later; asking for the status is enough to let it go.
  mutable std::vector<Held> held_;
  mutable absl::Status late_;  // of what was handed over late
  absl::Time let_go_at_;
};

}  // namespace

absl::StatusOr<FaultPlan> ParseFaultPlan(std::string_view text) {
  FaultPlan plan;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> fault = absl::StrSplit(part, absl::MaxSplits('=', 1));
    uint64_t piece = 0;
    std::set<uint64_t>* which = fault.first == "corrupt"     ? &plan.corrupt
                                : fault.first == "lose"      ? &plan.lose
                                : fault.first == "stall"     ? &plan.stall
                                : fault.first == "fail"      ? &plan.fail
                                : fault.first == "delay"     ? &plan.delay
                                : fault.first == "duplicate" ? &plan.duplicate
                                                             : nullptr;
    if (which == nullptr || !absl::SimpleAtoi(fault.second, &piece)) {
      return absl::InvalidArgumentError(
          absl::StrCat("fault plan: '", part, "' is not corrupt=N, lose=N, stall=N, fail=N, delay=N or duplicate=N"));
    }
    which->insert(piece);
  }
  return plan;
}

std::unique_ptr<SendChannel> WithFaults(std::unique_ptr<SendChannel> channel, std::shared_ptr<FaultState> state) {
  return std::make_unique<FaultChannel>(std::move(channel), std::move(state));
}

}  // namespace sluice::kvtransfer
