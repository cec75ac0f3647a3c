#include "router/generate_call.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/grpc_status.h"

namespace sluice::router {

void GenerateCall::Accept(AnswerStream answer) {
  absl::MutexLock lock(&mutex_);
  answer_.emplace(std::move(answer));
}

void GenerateCall::Refuse(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  final_ = ToGrpc(status);
  Continue();
}

void GenerateCall::OnTokens(const ClientTokens& event) {
  absl::MutexLock lock(&mutex_);
  if (final_.has_value()) return;
  const AnswerStream::Output output = answer_->OnTokens(event);
  for (const pb::GenerateResponse& response : output.responses) Push(response);
  if (output.stop_found) owner_->post(StopFound{call_});
  Continue();
}

void GenerateCall::OnEnd(const ClientEnd& event) {
  absl::MutexLock lock(&mutex_);
  if (final_.has_value()) return;
  if (event.status.ok()) Push(answer_->OnEnd(event));
  if (final_.has_value()) return;  // that was too much for a slow client
  if (event.retry_after > absl::ZeroDuration()) {
    context_->AddTrailingMetadata("retry-after-ms", absl::StrCat(absl::ToInt64Milliseconds(event.retry_after)));
  }
  final_ = ToGrpc(event.status);
  Continue();
}

void GenerateCall::Push(const pb::GenerateResponse& response) {
  if (final_.has_value()) return;
  const std::string bytes = response.SerializeAsString();
  // An empty outbox takes any one message, so that a single large response is never the client's fault.
  if (!outbox_.empty() && outbox_bytes_ + bytes.size() > limits_.outbox_bytes) return GiveUpOnSlowClient();
  const grpc::Slice slice(bytes);
  outbox_.emplace_back(&slice, 1);
  outbox_bytes_ += bytes.size();
}

void GenerateCall::GiveUpOnSlowClient() {
  final_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        absl::StrFormat("the client reads too slowly: %d bytes of its answer waited", outbox_bytes_));
  outbox_.clear();
  outbox_bytes_ = 0;
  owner_->post(ClientCancel{call_, absl::ResourceExhaustedError("the client reads too slowly")});
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
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok) {
    outbox_.clear();
    outbox_bytes_ = 0;
    if (!final_.has_value()) final_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone");
    owner_->post(ClientCancel{call_, absl::CancelledError("the client is gone")});
  }
  Continue();
}

void GenerateCall::OnCancel() {
  owner_->post(ClientCancel{call_, absl::CancelledError("the client cancelled")});
  absl::MutexLock lock(&mutex_);
  outbox_.clear();
  outbox_bytes_ = 0;
  if (!final_.has_value()) final_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client cancelled");
  Continue();
}

void GenerateCall::OnDone() {
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }
  owner_->ended(call_);
}

}  // namespace sluice::router
