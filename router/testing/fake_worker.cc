#include "router/testing/fake_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "router/grpc_status.h"
#include "router/registry.h"

namespace sluice::router {

FakeWorker::FakeWorker(const FakeWorkerOptions& options, const FakeScript& script, int router_port)
    : options_(options), script_(script) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", options.port), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr && port_ > 0);
  announcer_ = std::thread([this, router_port] { Announce(router_port); });
}

void FakeWorker::Stop(bool goodbye) {
  if (stopping_.exchange(true)) return;
  goodbye_ = goodbye;
  if (!goodbye) announce_context_.TryCancel();
  announcer_.join();
  {
    absl::MutexLock lock(&mutex_);
    if (work_context_ != nullptr) work_context_->TryCancel();
  }
  server_->Shutdown(std::chrono::system_clock::now());
}

int FakeWorker::live() const {
  absl::MutexLock lock(&mutex_);
  return int(jobs_.size());
}

absl::Status FakeWorker::announced() const {
  absl::MutexLock lock(&mutex_);
  return announced_;
}

void FakeWorker::SetScript(const FakeScript& script) {
  absl::MutexLock lock(&mutex_);
  script_ = script;
}

void FakeWorker::Announce(int router_port) {
  auto stub = pb::Registry::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", router_port), grpc::InsecureChannelCredentials()));
  auto stream = stub->Announce(&announce_context_);
  pb::Announcement announcement;
  pb::WorkerInfo& info = *announcement.mutable_info();
  info.set_role(pb::ROLE_BOTH);
  info.set_incarnation(options_.incarnation);
  info.set_model("tiny");
  info.mutable_fingerprint()->set_model_hash(options_.model_hash);
  info.mutable_fingerprint()->set_block_size(16);
  info.mutable_fingerprint()->set_protocol_version(kProtocolVersion);
  info.mutable_work()->set_host("127.0.0.1");
  info.mutable_work()->set_port(port_);
  info.set_blocks_total(options_.blocks);
  info.set_max_running(options_.max_running);
  bool open = stream->Write(announcement);
  for (uint64_t sequence = 1; open && !stopping_; ++sequence) {
    announcement.Clear();
    announcement.mutable_report()->set_sequence(sequence);
    announcement.mutable_report()->set_blocks_free(options_.blocks);
    open = stream->Write(announcement);
    for (int i = 0; i < 20 && !stopping_; ++i) absl::SleepFor(absl::Milliseconds(5));
  }
  if (goodbye_) {
    announcement.Clear();
    announcement.set_leaving(true);
    stream->Write(announcement);
    stream->WritesDone();
  }
  pb::AnnounceReply reply;
  while (stream->Read(&reply)) {
  }
  const absl::Status status = FromGrpc(stream->Finish());
  absl::MutexLock lock(&mutex_);
  announced_ = status;
  announce_ended_ = true;
}

grpc::Status FakeWorker::Work(grpc::ServerContext* context, Stream* stream) {
  pb::RouterMessage message;
  if (!stream->Read(&message) || message.hello().worker_incarnation() != options_.incarnation) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "stale incarnation");
  }
  {
    absl::MutexLock lock(&mutex_);
    work_context_ = context;
    pb::WorkerMessage hello;
    hello.mutable_hello()->set_worker_incarnation(options_.incarnation);
    stream->Write(hello);
  }
  std::atomic<bool> over = false;
  std::thread producer([&] { Produce(stream, &over); });
  while (stream->Read(&message)) OnMessage(message, stream);
  over = true;
  producer.join();
  absl::MutexLock lock(&mutex_);
  work_context_ = nullptr;
  jobs_.clear();
  return grpc::Status::OK;
}

void FakeWorker::OnMessage(const pb::RouterMessage& message, Stream* stream) {
  absl::MutexLock lock(&mutex_);
  pb::WorkerMessage out;
  if (message.has_reserve()) {
    ++reserves_;
    OnReserve(message.reserve(), out);
  } else if (message.has_cancel()) {
    ++cancels_;
    if (jobs_.erase(message.cancel().key().request_id()) > 0) {
      pb::WorkerEvent& event = *out.add_events();
      *event.mutable_key() = message.cancel().key();
      event.mutable_failed()->mutable_error()->set_code(int(absl::StatusCode::kCancelled));
      event.mutable_failed()->mutable_error()->set_reason(pb::CANCELLED_BY_CLIENT);
    }
  }
  if (out.events_size() > 0) stream->Write(out);
}

void FakeWorker::OnReserve(const pb::Reserve& reserve, pb::WorkerMessage& out) {
  if (script_.answer_reserve) {
    pb::WorkerEvent& event = *out.add_events();
    *event.mutable_key() = reserve.key();
    if (script_.refuse != pb::ERROR_REASON_UNSPECIFIED) {
      event.mutable_refused()->mutable_error()->set_reason(script_.refuse);
      event.mutable_refused()->mutable_error()->set_message("scripted");
      return;
    }
    event.mutable_lease_granted()->set_lease_id(next_lease_++);
    event.mutable_lease_granted()->set_lease_ms(10000);
  }
  Job job{reserve.key(), script_, 0, reserve.sequence().sampling().max_tokens()};
  if (!script_.answer_reserve) job.script.tokens = 0;
  jobs_[reserve.key().request_id()] = std::move(job);
}

// True when the job is over.
bool FakeWorker::Step(Job& job, pb::WorkerMessage& out) {
  const int end = std::min({job.next + job.script.tokens_per_message, job.script.tokens, job.max_tokens});
  if (job.next < end) {
    pb::WorkerEvent& event = *out.add_events();
    *event.mutable_key() = job.key;
    pb::Tokens& tokens = *event.mutable_tokens();
    tokens.set_first_index(job.next);
    for (; job.next < end; ++job.next) {
      tokens.add_token_ids(job.script.ids[size_t(job.next) % job.script.ids.size()]);
      if (job.script.top_logprobs == 0) continue;
      pb::TokenLogprobs& logprobs = *tokens.add_logprobs();
      for (int i = 0; i < job.script.top_logprobs; ++i) logprobs.add_top()->set_logprob(-1);
    }
  }
  const bool failed = job.next >= job.script.tokens && job.script.fail_after != absl::StatusCode::kOk;
  if (!failed && job.next < job.max_tokens) return false;
  pb::WorkerEvent& event = *out.add_events();
  *event.mutable_key() = job.key;
  if (failed) {
    event.mutable_failed()->mutable_error()->set_code(int(job.script.fail_after));
    event.mutable_failed()->mutable_error()->set_message("scripted");
  } else {
    event.mutable_finished()->set_last(true);
    event.mutable_finished()->set_reason(pb::FINISH_REASON_LENGTH);
  }
  return true;
}

void FakeWorker::Produce(Stream* stream, const std::atomic<bool>* over) {
  while (!*over && !stopping_) {
    {
      absl::MutexLock lock(&mutex_);
      pb::WorkerMessage out;
      for (auto it = jobs_.begin(); it != jobs_.end();) {
        auto job = it++;
        if (Step(job->second, out)) jobs_.erase(job);
      }
      if (out.events_size() > 0) stream->Write(out);
    }
    absl::SleepFor(absl::Microseconds(200));
  }
}

}  // namespace sluice::router
