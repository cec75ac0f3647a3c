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

pb::WorkerInfo FakeWorker::Info() const {
  pb::WorkerInfo info;
  info.set_role(options_.role);
  info.set_incarnation(options_.incarnation);
  info.set_model("tiny");
  info.mutable_fingerprint()->set_model_hash(options_.model_hash);
  info.mutable_fingerprint()->set_block_size(16);
  info.mutable_fingerprint()->set_protocol_version(kProtocolVersion);
  info.mutable_work()->set_host("127.0.0.1");
  info.mutable_work()->set_port(port_);
  info.set_blocks_total(options_.blocks);
  info.set_max_running(options_.max_running);
  return info;
}

pb::WorkerReport FakeWorker::Report(uint64_t sequence) const {
  pb::WorkerReport report;
  report.set_sequence(sequence);
  report.set_blocks_free(options_.blocks);
  absl::MutexLock lock(&mutex_);
  for (uint64_t peer : peers_) {
    pb::PairStatus& pair = *report.add_pairs();
    pair.set_decode_incarnation(peer);
    pair.set_up(options_.fits);
    if (!options_.fits) pair.mutable_refused()->set_message("scripted misfit");
  }
  return report;
}

void FakeWorker::Announce(int router_port) {
  auto stub = pb::Registry::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", router_port), grpc::InsecureChannelCredentials()));
  auto stream = stub->Announce(&announce_context_);
  pb::Announcement announcement;
  *announcement.mutable_info() = Info();
  bool open = stream->Write(announcement);
  std::thread reader([this, &stream] {
    pb::AnnounceReply reply;
    while (stream->Read(&reply)) {
      if (!reply.peers_valid()) continue;
      absl::MutexLock lock(&mutex_);
      peers_.clear();
      for (const pb::DecodePeer& peer : reply.decode_peers()) peers_.push_back(peer.incarnation());
    }
  });
  for (uint64_t sequence = 1; open && !stopping_; ++sequence) {
    announcement.Clear();
    *announcement.mutable_report() = Report(sequence);
    open = stream->Write(announcement);
    for (int i = 0; i < 20 && !stopping_; ++i) absl::SleepFor(absl::Milliseconds(5));
  }
  if (goodbye_) {
    announcement.Clear();
    announcement.set_leaving(true);
    stream->Write(announcement);
    stream->WritesDone();
  }
  reader.join();
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
    last_trace_ = message.reserve().sequence().trace();
    OnReserve(message.reserve(), out);
  } else if (message.has_prefill()) {
    ++prefills_;
    last_trace_ = message.prefill().sequence().trace();
    OnPrefill(message.prefill(), out);
  } else if (message.has_release()) {
    ++releases_;
    jobs_.erase(message.release().key().request_id());
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

pb::TraceContext FakeWorker::last_trace() const {
  absl::MutexLock lock(&mutex_);
  return last_trace_;
}

bool FakeWorker::Refuses(const pb::RequestKey& key, pb::WorkerMessage& out) {
  if (script_.refuse == pb::ERROR_REASON_UNSPECIFIED) return false;
  pb::WorkerEvent& event = *out.add_events();
  *event.mutable_key() = key;
  event.mutable_refused()->mutable_error()->set_reason(script_.refuse);
  event.mutable_refused()->mutable_error()->set_message("scripted");
  return true;
}

void FakeWorker::TakePromptLogprobs(const pb::SequenceSpec& sequence, Job& job) {
  if (!sequence.sampling().has_prompt_logprobs()) return;
  job.scored.assign(sequence.tokens().begin() + 1, sequence.tokens().begin() + sequence.num_prompt_tokens());
  job.prompt_top = sequence.sampling().prompt_logprobs();
}

void FakeWorker::OnReserve(const pb::Reserve& reserve, pb::WorkerMessage& out) {
  Job job{.key = reserve.key(), .script = script_};
  job.max_tokens = reserve.sequence().sampling().max_tokens();
  job.start = absl::Now() + script_.delay;
  if (script_.answer_reserve) {
    if (Refuses(reserve.key(), out)) return;
    job.lease = next_lease_++;
    pb::WorkerEvent& event = *out.add_events();
    *event.mutable_key() = reserve.key();
    event.mutable_lease_granted()->set_lease_id(job.lease);
    event.mutable_lease_granted()->set_lease_ms(10000);
  } else {
    job.start = absl::InfiniteFuture();
  }
  job.awaits_kv = !reserve.compute_prompt();
  if (!job.awaits_kv) TakePromptLogprobs(reserve.sequence(), job);
  job.next = job.awaits_kv ? 1 : 0;
  jobs_[reserve.key().request_id()] = std::move(job);
}

void FakeWorker::OnPrefill(const pb::Prefill& prefill, pb::WorkerMessage& out) {
  if (Refuses(prefill.key(), out)) return;
  Job job{.key = prefill.key(), .script = script_};
  job.max_tokens = 1;
  job.start = absl::Now() + script_.delay;
  job.hands_over = prefill.has_lease() && !script_.stop_at_first;
  TakePromptLogprobs(prefill.sequence(), job);
  jobs_[prefill.key().request_id()] = std::move(job);
}

// True when the job is over.
bool FakeWorker::Step(Job& job, pb::WorkerMessage& out) {
  if (absl::Now() < job.start) return false;
  const auto say = [&]() -> pb::WorkerEvent& {
    pb::WorkerEvent& event = *out.add_events();
    *event.mutable_key() = job.key;
    return event;
  };
  const int end = std::min({job.next + job.script.tokens_per_message, job.script.tokens, job.max_tokens});
  if (job.next < end) {
    if (std::exchange(job.awaits_kv, false)) say().mutable_committed()->set_lease_id(job.lease);
    pb::Tokens& tokens = *say().mutable_tokens();
    tokens.set_first_index(job.next);
    for (const int32_t id : std::exchange(job.scored, {})) {
      pb::TokenLogprobs& logprobs = *tokens.add_prompt_logprobs();
      logprobs.mutable_sampled()->set_token_id(id);
      for (int i = 0; i < job.prompt_top; ++i) logprobs.add_top()->set_token_id(5 + i);
    }
    for (; job.next < end; ++job.next) {
      tokens.add_token_ids(job.script.ids[size_t(job.next) % job.script.ids.size()]);
      if (job.script.top_logprobs == 0) continue;
      pb::TokenLogprobs& logprobs = *tokens.add_logprobs();
      for (int i = 0; i < job.script.top_logprobs; ++i) logprobs.add_top()->set_logprob(-1);
    }
  }
  const bool failed = job.next >= job.script.tokens && job.script.fail_after != absl::StatusCode::kOk;
  if (!failed && job.next < job.max_tokens) return false;
  if (failed) {
    pb::ErrorInfo& error = *say().mutable_failed()->mutable_error();
    error.set_code(int(job.script.fail_after));
    error.set_message("scripted");
  } else if (job.hands_over) {
    say().mutable_progress()->add_events()->set_name("transfer_done");
  } else {
    pb::Finished& finished = *say().mutable_finished();
    finished.set_last(true);
    finished.set_reason(job.script.stop_at_first ? pb::FINISH_REASON_STOP : pb::FINISH_REASON_LENGTH);
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
    absl::SleepFor(options_.step);
  }
}

}  // namespace sluice::router
