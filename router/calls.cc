#include "router/calls.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace sluice::router {
namespace {

std::mt19937_64 SeededFromDevice() {
  std::random_device device;
  std::seed_seq seeds{device(), device(), device(), device(), device(), device(), device(), device()};
  return std::mt19937_64(seeds);
}

}  // namespace

Calls::Calls(const ServedModel* model, std::function<void(Event)> post)
    : model_(model), post_(std::move(post)), rng_(SeededFromDevice()) {}

uint64_t Calls::Draw() {
  absl::MutexLock lock(&mutex_);
  return rng_();
}

uint64_t Calls::Add(std::shared_ptr<CallSink> sink) {
  auto call = std::make_shared<Call>();
  call->sink = std::move(sink);
  absl::MutexLock lock(&mutex_);
  calls_[next_call_] = std::move(call);
  return next_call_++;
}

absl::Status Calls::Start(uint64_t call, const pb::GenerateRequest& request, absl::Time received,
                          absl::Duration time_left) {
  absl::StatusOr<ValidRequest> valid = Validate(request, *model_, capacity_, Draw(), absl::Now());
  std::shared_ptr<Call> over;  // destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  auto it = calls_.find(call);
  if (it == calls_.end()) return absl::CancelledError("the client cancelled");
  if (!valid.ok()) {
    Refused(valid.status());
    over = std::move(it->second);
    calls_.erase(it);
    return valid.status();
  }
  it->second->answer.emplace(model_->tokenizer, *valid, received);
  it->second->started = true;
  // Under the lock, so that no Cancel reaches the core before its Submit.
  post_(Submit{call, std::move(valid->request_id), std::move(valid->sequence), received,
               received + std::min(valid->timeout, time_left), valid->ttft_slo, valid->tpot_slo});
  return absl::OkStatus();
}

void Calls::Cancel(uint64_t call, const absl::Status& why) {
  std::shared_ptr<CallSink> sink;  // destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  auto it = calls_.find(call);
  if (it == calls_.end() || it->second->sink == nullptr) return;
  sink = std::move(it->second->sink);
  if (it->second->started) {
    post_(ClientCancel{call, why});
  } else {
    calls_.erase(it);
  }
}

std::shared_ptr<Calls::Call> Calls::Find(uint64_t call, std::shared_ptr<CallSink>& sink) {
  absl::MutexLock lock(&mutex_);
  auto it = calls_.find(call);
  if (it == calls_.end()) return nullptr;
  sink = it->second->sink;
  return it->second;
}

RequestMetrics Calls::metrics() const {
  RequestMetrics metrics = metrics_;
  for (size_t code = 0; code < refused_.size(); ++code) {
    metrics.RefusedAtEdge(absl::StatusCode(code), refused_[code].load(std::memory_order_relaxed));
  }
  return metrics;
}

void Calls::Refused(const absl::Status& why) {
  refused_[std::min(size_t(why.code()), refused_.size() - 1)].fetch_add(1, std::memory_order_relaxed);
}

void Calls::Deliver(const ClientTokens& event) {
  std::shared_ptr<CallSink> sink;
  const std::shared_ptr<Call> call = Find(event.call, sink);
  if (call == nullptr || sink == nullptr) return;
  AnswerStream::Output output = call->answer->OnTokens(event);
  if (output.tokens > 0) metrics_.Tokens(output.tokens, output.since_last);
  if (output.since_received.has_value()) metrics_.FirstToken(*output.since_received);
  if (!output.responses.empty() && !sink->Send(std::move(output.responses))) {
    return Cancel(event.call, absl::ResourceExhaustedError("the client reads too slowly"));
  }
  if (output.stop_found) post_(StopFound{event.call, event.tokens.choice()});
}

void Calls::Deliver(const ClientEnd& event) {
  std::shared_ptr<CallSink> sink;
  const std::shared_ptr<Call> call = Find(event.call, sink);
  if (call == nullptr) return;
  bool sent = true;
  if (event.status.ok()) {
    pb::GenerateResponse last = call->answer->OnEnd(event);
    metrics_.Succeeded(last);
    sent = sink != nullptr && sink->Send({std::move(last)});
  } else {
    metrics_.Failed(event);
  }
  if (sink != nullptr && sent) sink->End(event.status, event.retry_after);
  absl::MutexLock lock(&mutex_);
  calls_.erase(event.call);
}

}  // namespace sluice::router
