// The one engine thread of a worker: takes what the streams brought, lets the core answer it, plans and commits the
// engine's steps, hands the events to the streams. Steps execute in a thread of their own (step_thread.h), so a message
// never waits for one; everybody else only posts.
//
//   streams --Post--> mailbox --> core --> plan --> StepThread --> commit --> core --> StreamSink::Send --> AfterStep
//
// How far it plans ahead: a device wants its next step at once (2); where planning costs nothing beside a step, the
// CPU, a step that is planned later sees more of what has arrived (1).
//
// The mailbox is bounded by its senders: a stream is told by Consumed how much of it was taken.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/worker.pb.h"
#include "worker/engine_port.h"
#include "worker/report_board.h"
#include "worker/step_thread.h"
#include "worker/worker_core.h"

namespace sluice::worker {

// A Work stream as the engine thread sees it. Calls never block and may come after the stream is over.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual void Send(v1::WorkerMessage message) = 0;
  virtual void Close(const absl::Status& status) = 0;  // after what was sent before
  virtual void Consumed(size_t messages) = 0;
};

struct EngineLoopOptions {
  // Called on the engine thread when the engine failed; the loop is over then.
  std::function<void(const absl::Status&)> on_engine_error;
  int steps_ahead = 1;  // steps that are planned and not committed, at most Engine::kMaxStepsUnderWay
};

class EngineLoop {
 public:
  // `board` must outlive the loop.
  EngineLoop(const EngineLoopOptions& options, ReportBoard& board);
  ~EngineLoop();  // stops and joins

  // From here to the end of Stop the core is used by the loop's thread only, and `engine`, the core's, by it and its
  // step thread. Before it everything that is posted waits.
  void Start(WorkerCore& core, EnginePort& engine);

  // The loop keeps the sink until EndStream. One EndStream a stream, and nothing of it afterwards.
  StreamId OpenStream(std::shared_ptr<StreamSink> sink);
  void Post(StreamId stream, v1::RouterMessage message);
  void EndStream(StreamId stream);

  // Runs `task` on the engine thread, in order with everything else; `posted` is when it was posted.
  // Dropped once the loop is over. Any thread.
  void PostTask(std::function<void(absl::Time posted)> task);

  void Drain();

  // Something else than a step has found that the engine's device failed: the loop ends as after a failed step. Any
  // thread; the first counts.
  void Fail(const absl::Status& why);

  // How long the loop has been busy with one turn, or with one step; zero while it has nothing to do. Any thread.
  absl::Duration TurnAge() const;

  // Ends every request with `error`, closes the streams, ends the threads. True if they ended within `timeout`; a step
  // under way cannot be interrupted.
  bool Stop(const v1::ErrorInfo& error, absl::Duration timeout);

 private:
  struct Opened {
    std::shared_ptr<StreamSink> sink;
  };
  struct Ended {};
  struct DrainAll {};
  struct Command {
    StreamId stream = 0;
    absl::Time received;
    std::variant<Opened, v1::RouterMessage, Ended, DrainAll, std::function<void(absl::Time)>> what;
  };

  void Enqueue(Command command);
  void Run();
  struct Taken {
    std::vector<Command> commands;
    absl::Time at;  // whatever was posted until then is here
  };
  Taken WaitForWork() ABSL_LOCKS_EXCLUDED(mutex_);
  void Handle(std::vector<Command> commands);
  absl::Status CommitDone();
  void PlanAhead();
  void OnStepDone();
  void Flush();
  void CloseAll(const v1::ErrorInfo& error);
  bool WorkIsWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || step_done_ || !failed_.ok() || !mailbox_.empty();
  }

  const EngineLoopOptions options_;
  ReportBoard& board_;

  absl::Mutex mutex_;
  std::vector<Command> mailbox_ ABSL_GUARDED_BY(mutex_);
  StreamId next_stream_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool step_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);  // by Fail
  v1::ErrorInfo stop_error_ ABSL_GUARDED_BY(mutex_);

  std::atomic<int64_t> turn_began_ = 0;  // nanoseconds of the monotonic clock; 0: it waits for work

  // Of the engine thread alone.
  WorkerCore* core_ = nullptr;
  std::unordered_map<StreamId, std::shared_ptr<StreamSink>> sinks_;
  double step_ms_ = 0;  // moving average
  int under_way_ = 0;   // steps that were planned and not committed

  std::unique_ptr<StepThread> steps_;
  std::thread thread_;
};

}  // namespace sluice::worker
