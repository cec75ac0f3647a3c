#include "worker/outbox.h"

#include <utility>

namespace sluice::worker {
namespace {

// Events are appended; of two reports the later one holds.
void Merge(v1::WorkerMessage&& from, v1::WorkerMessage& to) {
  for (v1::WorkerEvent& event : *from.mutable_events()) *to.add_events() = std::move(event);
  if (from.has_report()) *to.mutable_report() = std::move(*from.mutable_report());
  if (from.has_hello()) *to.mutable_hello() = std::move(*from.mutable_hello());
}

}  // namespace

bool Outbox::Push(v1::WorkerMessage message) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes_ + bytes > limit_bytes_) return false;
  bytes_ += bytes;
  if (!waiting_.empty() && waiting_.back().bytes + bytes <= merge_bytes_) {
    Merge(std::move(message), waiting_.back().message);
    waiting_.back().bytes += bytes;
  } else {
    waiting_.push_back({std::move(message), bytes});
  }
  return true;
}

std::optional<v1::WorkerMessage> Outbox::Pop() {
  if (waiting_.empty()) return std::nullopt;
  v1::WorkerMessage message = std::move(waiting_.front().message);
  bytes_ -= waiting_.front().bytes;
  waiting_.pop_front();
  return message;
}

void Outbox::Clear() {
  waiting_.clear();
  bytes_ = 0;
}

}  // namespace sluice::worker
