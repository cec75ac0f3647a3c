#include "router/generate_call.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/grpc_status.h"

namespace sluice::router {

std::shared_ptr<GenerateCall> GenerateCall::Make(Calls* calls, grpc::CallbackServerContext* context,
                                                 const CallLimits& limits) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(calls, context, limits));
  call->self_ = call;
  call->id_ = calls->Add(call);
  return call;
}

void GenerateCall::Refuse(const absl::Status& status) {
  calls_->Cancel(id_, status);
  absl::MutexLock lock(&mutex_);
  if (!final_.has_value()) final_ = ToGrpc(status);
  Continue();
}

bool GenerateCall::Send(std::vector<pb::GenerateResponse> responses) {
  std::vector<grpc::ByteBuffer> buffers;
  size_t bytes = 0;
  for (const pb::GenerateResponse& response : responses) {
    const grpc::Slice slice(response.SerializeAsString());
    bytes += slice.size();
    buffers.emplace_back(&slice, 1);
  }
  absl::MutexLock lock(&mutex_);
  if (final_.has_value()) return true;  // its Cancel is on its way
  if (outbox_.empty()) step_bytes_ = bytes;
  if (!outbox_.empty() && outbox_bytes_ + bytes > limits_.outbox_bytes + step_bytes_) {
    GiveUpOnSlowClient();
    Continue();
    return false;
  }
  for (grpc::ByteBuffer& buffer : buffers) outbox_.push_back(std::move(buffer));
  outbox_bytes_ += bytes;
  Continue();
  return true;
}

void GenerateCall::End(const absl::Status& status, absl::Duration retry_after) {
  absl::MutexLock lock(&mutex_);
  if (final_.has_value()) return;
  if (retry_after > absl::ZeroDuration()) {
    context_->AddTrailingMetadata("retry-after-ms", absl::StrCat(absl::ToInt64Milliseconds(retry_after)));
  }
  final_ = ToGrpc(status);
  Continue();
}

void GenerateCall::Drop() {
  outbox_.clear();
  outbox_bytes_ = 0;
}

void GenerateCall::GiveUpOnSlowClient() {
  final_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        absl::StrFormat("the client reads too slowly: %d bytes of its answer waited", outbox_bytes_));
  Drop();
  // The status waits behind the write in flight; a client that never reads again gets a reset instead.
  slow_alarm_ = std::make_unique<grpc::Alarm>();
  slow_alarm_->Set(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limits_.slow_grace),
                   [weak = weak_from_this()](bool expired) {
                     const std::shared_ptr<GenerateCall> self = weak.lock();
                     if (!expired || self == nullptr) return;
                     absl::MutexLock lock(&self->mutex_);
                     if (!self->done_) self->context_->TryCancel();
                   });
}

void GenerateCall::Continue() {
  if (writing_ || finished_) return;
  if (!outbox_.empty()) {
    in_flight_ = std::move(outbox_.front());
    outbox_.pop_front();
    outbox_bytes_ -= in_flight_.Length();
    writing_ = true;
    StartWrite(&in_flight_);
  } else if (final_.has_value()) {
    finished_ = true;
    Finish(*final_);
  }
}

void GenerateCall::OnWriteDone(bool ok) {
  if (!ok) calls_->Cancel(id_, absl::CancelledError("the client is gone"));
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok) {
    Drop();
    if (!final_.has_value()) final_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone");
  }
  Continue();
}

void GenerateCall::OnCancel() {
  calls_->Cancel(id_, absl::CancelledError("the client cancelled"));
  absl::MutexLock lock(&mutex_);
  Drop();
  if (!final_.has_value()) final_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client cancelled");
  Continue();
}

void GenerateCall::OnDone() {
  std::shared_ptr<GenerateCall> last = std::move(self_);  // destroyed after the lock
  absl::MutexLock lock(&mutex_);
  done_ = true;
}

}  // namespace sluice::router
