#include "router/http/call.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace sluice::router {

bool HttpCall::Send(std::vector<pb::GenerateResponse> responses) {
  bool wake;
  bool taken = true;
  {
    absl::MutexLock lock(&mutex_);
    size_t size = 0;
    for (const pb::GenerateResponse& response : responses) size += response.ByteSizeLong();
    if (bytes_ > 0 && bytes_ + size > outbox_bytes_) {
      batch_.responses.clear();
      batch_.end = absl::ResourceExhaustedError(
          absl::StrFormat("the client reads too slowly: %d bytes of its answer waited", bytes_));
      bytes_ = 0;
      too_slow_ = true;
      taken = false;
    } else {
      bytes_ += size;
      for (pb::GenerateResponse& response : responses) batch_.responses.push_back(std::move(response));
    }
    wake = !std::exchange(woken_, true) || !taken;
  }
  if (wake) wake_();
  return taken;
}

void HttpCall::End(const absl::Status& status, absl::Duration retry_after) {
  {
    absl::MutexLock lock(&mutex_);
    if (batch_.end.has_value()) return;
    batch_.end = status;
    batch_.retry_after = retry_after;
    if (std::exchange(woken_, true)) return;
  }
  wake_();
}

HttpCall::Batch HttpCall::Take() {
  absl::MutexLock lock(&mutex_);
  woken_ = false;
  bytes_ = 0;
  return std::exchange(batch_, {});
}

bool HttpCall::too_slow() const {
  absl::MutexLock lock(&mutex_);
  return too_slow_;
}

}  // namespace sluice::router
