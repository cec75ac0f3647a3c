#include "worker/engine_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "glog/logging.h"
#include "worker/error_info.h"
#include "worker/monotonic_clock.h"

namespace sluice::worker {
namespace {

constexpr double kStepAverageWeight = 0.1;

}  // namespace

EngineLoop::EngineLoop(const EngineLoopOptions& options, ReportBoard& board) : options_(options), board_(board) {}

EngineLoop::~EngineLoop() {
  Stop(MakeError(v1::DRAINING_WORKER, "the worker is shutting down"), absl::ZeroDuration());
  if (thread_.joinable()) thread_.join();
}

void EngineLoop::Start(WorkerCore& core, EnginePort& engine) {
  core_ = &core;
  steps_ = std::make_unique<StepThread>(engine, [this] { OnStepDone(); });
  board_.Publish(core_->Report());
  thread_ = std::thread([this] { Run(); });
}

StreamId EngineLoop::OpenStream(std::shared_ptr<StreamSink> sink) {
  absl::MutexLock lock(&mutex_);
  const StreamId id = next_stream_++;
  if (!ended_) mailbox_.push_back({id, MonotonicNow(), Opened{std::move(sink)}});
  return id;
}

void EngineLoop::Post(StreamId stream, v1::RouterMessage message) {
  Enqueue({stream, MonotonicNow(), std::move(message)});
}

void EngineLoop::EndStream(StreamId stream) {
  Enqueue({stream, MonotonicNow(), Ended{}});
}

void EngineLoop::PostTask(std::function<void(absl::Time)> task) {
  Enqueue({0, MonotonicNow(), std::move(task)});
}

void EngineLoop::Drain() {
  Enqueue({0, MonotonicNow(), DrainAll{}});
}

void EngineLoop::Fail(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (failed_.ok()) failed_ = why;
}

void EngineLoop::Enqueue(Command command) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  mailbox_.push_back(std::move(command));
}

absl::Duration EngineLoop::TurnAge() const {
  const absl::Time now = MonotonicNow();
  const int64_t began = turn_began_;
  const absl::Duration turn = began == 0 ? absl::ZeroDuration() : now - absl::FromUnixNanos(began);
  return std::max({turn, now - steps_->running_since(), absl::ZeroDuration()});
}

void EngineLoop::OnStepDone() {
  absl::MutexLock lock(&mutex_);
  step_done_ = true;
}

bool EngineLoop::Stop(const v1::ErrorInfo& error, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  if (!thread_.joinable()) return true;
  if (!stopping_) stop_error_ = error;
  stopping_ = true;
  return mutex_.AwaitWithTimeout(absl::Condition(&ended_), timeout);
}

// Tokens first, then answers, then the next step: nothing of a turn waits for it.
void EngineLoop::Run() {
  absl::Status status = absl::OkStatus();
  for (;;) {
    Taken taken = WaitForWork();
    status = CommitDone();
    if (!status.ok()) break;
    Handle(std::move(taken.commands));
    core_->Tick(taken.at);  // nothing that came in later could have been heard
    Flush();
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) break;
    }
    PlanAhead();
  }
  v1::ErrorInfo error = ErrorOfFailedEngine(status);
  if (status.ok()) {
    absl::MutexLock lock(&mutex_);
    error = stop_error_;
  }
  CloseAll(error);
  if (!status.ok() && options_.on_engine_error) options_.on_engine_error(status);
  steps_->Stop();
  turn_began_ = 0;
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  mailbox_.clear();
}

EngineLoop::Taken EngineLoop::WaitForWork() {
  Taken taken;
  absl::MutexLock lock(&mutex_);
  if (!WorkIsWaiting()) {
    turn_began_ = 0;
    mutex_.AwaitWithTimeout(absl::Condition(this, &EngineLoop::WorkIsWaiting), core_->NextTimer() - MonotonicNow());
  }
  step_done_ = false;
  taken.commands.swap(mailbox_);
  taken.at = MonotonicNow();
  turn_began_ = absl::ToUnixNanos(taken.at);
  return taken;
}

absl::Status EngineLoop::CommitDone() {
  {
    absl::MutexLock lock(&mutex_);
    if (!failed_.ok()) return failed_;
  }
  while (std::optional<StepThread::Done> done = steps_->Take()) {
    if (!done->status.ok()) return done->status;
    --under_way_;
    const double ms = absl::ToDoubleMilliseconds(done->took);
    step_ms_ = step_ms_ == 0 ? ms : step_ms_ + kStepAverageWeight * (ms - step_ms_);
    core_->CommitStep(std::move(done->work), done->at);
    Flush();
    core_->AfterStep();
  }
  return absl::OkStatus();
}

// Where nothing can be planned now, something has to happen first: a message, a timer, or the end of a step.
void EngineLoop::PlanAhead() {
  while (under_way_ < options_.steps_ahead) {
    std::unique_ptr<engine::StepWork> step = core_->BeginStep();
    if (step == nullptr) return;
    ++under_way_;
    steps_->Submit(std::move(step));
  }
}

void EngineLoop::Handle(std::vector<Command> commands) {
  std::unordered_map<StreamId, size_t> consumed;
  for (Command& command : commands) {
    if (auto* opened = std::get_if<Opened>(&command.what)) {
      sinks_[command.stream] = std::move(opened->sink);
    } else if (auto* message = std::get_if<v1::RouterMessage>(&command.what)) {
      core_->OnMessage(command.stream, *message, command.received);
      ++consumed[command.stream];
    } else if (std::holds_alternative<Ended>(command.what)) {
      core_->OnStreamEnd(command.stream);
      sinks_.erase(command.stream);
    } else if (auto* task = std::get_if<std::function<void(absl::Time)>>(&command.what)) {
      (*task)(command.received);
    } else {
      if (!core_->draining()) LOG(INFO) << "draining: new requests are refused, running ones finish";
      core_->Drain();
    }
  }
  for (const auto& [stream, count] : consumed) {
    if (auto it = sinks_.find(stream); it != sinks_.end()) it->second->Consumed(count);
  }
}

void EngineLoop::Flush() {
  v1::WorkerReport report = core_->Report();
  report.set_step_ms(step_ms_);
  board_.Publish(std::move(report));
  for (Outgoing& outgoing : core_->TakeOutgoing()) {
    auto it = sinks_.find(outgoing.stream);
    if (it == sinks_.end()) continue;
    if (outgoing.message.has_report()) *outgoing.message.mutable_report() = board_.Take();
    if (outgoing.message.ByteSizeLong() > 0) it->second->Send(std::move(outgoing.message));
    if (outgoing.close) {
      LOG(WARNING) << "closing a Work stream: " << outgoing.close->message();
      it->second->Close(*outgoing.close);
    }
  }
}

void EngineLoop::CloseAll(const v1::ErrorInfo& error) {
  core_->FailAll(error);
  Flush();
  for (auto& [stream, sink] : sinks_) {
    sink->Close(absl::Status(static_cast<absl::StatusCode>(error.code()), error.message()));
  }
  sinks_.clear();
}

}  // namespace sluice::worker
