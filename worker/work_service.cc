#include "worker/work_service.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"
#include "worker/outbox.h"

namespace sluice::worker {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// Lives from the call's start until OnDone, and as long as the loop knows it.
//
// gRPC ends a call when Finish was called and nothing is outstanding. So operations that are issued outside a reaction
// count as `issuing_` or `writing_`, and Finish waits for both: no operation can meet a dead call. gRPC is never called
// with the mutex held.
class WorkStream final : public grpc::ServerBidiReactor<v1::RouterMessage, v1::WorkerMessage>,
                         public StreamSink,
                         public std::enable_shared_from_this<WorkStream> {
 public:
  // `on_done`: the last that it does.
  WorkStream(grpc::CallbackServerContext& context, EngineLoop& loop, const StreamLimits& limits,
             std::function<void()> on_done)
      : context_(context),
        loop_(loop),
        limits_(limits),
        on_done_(std::move(on_done)),
        outbox_(limits.merge_bytes, limits.outbox_bytes) {}

  void Begin() {
    self_ = shared_from_this();
    id_ = loop_.OpenStream(self_);
    StartRead(&incoming_);
  }

  // ---- the engine thread ----

  void Send(v1::WorkerMessage message) override {
    Todo todo;
    {
      absl::MutexLock lock(&mutex_);
      if (end_status_) return;
      if (outbox_.Push(std::move(message))) {
        todo = NextWrite();
      } else {
        LOG(WARNING) << "giving up a Work stream: the router " << context_.peer() << " does not read its events";
        End(absl::ResourceExhaustedError("the router does not read its events"));
        todo.cancel = true;
        ++issuing_;
      }
    }
    Do(todo);
  }

  void Close(const absl::Status& status) override {
    Todo todo;
    {
      absl::MutexLock lock(&mutex_);
      if (!end_status_) end_status_ = status;
      todo = NextWrite();
    }
    Do(todo);
  }

  void Consumed(size_t messages) override {
    Todo todo;
    {
      absl::MutexLock lock(&mutex_);
      unconsumed_ -= messages;
      if (!paused_ || unconsumed_ > limits_.unconsumed_messages / 2 || reported_end_ || finished_) return;
      paused_ = false;
      todo.read = true;
      ++issuing_;
    }
    Do(todo);
  }

  // ---- gRPC's reactions ----

  void OnReadDone(bool ok) override {
    Todo todo;
    bool read_on = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!ok) {
        End(absl::OkStatus());
        todo = NextWrite();
      } else if (!reported_end_) {
        loop_.Post(id_, std::move(incoming_));
        incoming_.Clear();
        paused_ = ++unconsumed_ >= limits_.unconsumed_messages;
        read_on = !paused_;
      }
    }
    if (read_on) StartRead(&incoming_);
    Do(todo);
  }

  void OnWriteDone(bool ok) override {
    Todo todo;
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) End(absl::UnavailableError("the connection to the router is lost"));
      todo = NextWrite();
    }
    Do(todo);
  }

  void OnCancel() override {
    Todo todo;
    {
      absl::MutexLock lock(&mutex_);
      End(absl::CancelledError("the router ended the stream"));
      todo = NextWrite();
    }
    Do(todo);
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&mutex_);
      End(absl::OkStatus());
    }
    on_done_();
    std::shared_ptr<WorkStream> last = std::move(self_);
  }

 private:
  // gRPC calls to make once the mutex is free.
  struct Todo {
    bool write = false;
    bool finish = false;
    bool read = false;
    bool cancel = false;
  };

  // The stream is over: its requests end at once and nothing more is sent.
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!end_status_) end_status_ = status;
    outbox_.Clear();
    if (reported_end_) return;
    reported_end_ = true;
    loop_.EndStream(id_);
  }

  Todo NextWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Todo todo;
    if (writing_ || finished_) return todo;
    if (std::optional<v1::WorkerMessage> next = outbox_.Pop()) {
      outgoing_ = *std::move(next);
      todo.write = writing_ = true;
    } else if (end_status_ && issuing_ == 0) {
      todo.finish = finished_ = true;
    }
    return todo;
  }

  void Do(const Todo& todo) {
    if (todo.write) StartWrite(&outgoing_);
    if (todo.finish) Finish(ToGrpc(StatusToSend()));
    if (!todo.read && !todo.cancel) return;
    if (todo.read) StartRead(&incoming_);
    if (todo.cancel) context_.TryCancel();
    Todo after;
    {
      absl::MutexLock lock(&mutex_);
      --issuing_;
      after = NextWrite();
    }
    Do(after);
  }

  absl::Status StatusToSend() {
    absl::MutexLock lock(&mutex_);
    return *end_status_;
  }

  grpc::CallbackServerContext& context_;  // until OnDone
  EngineLoop& loop_;
  const StreamLimits limits_;
  const std::function<void()> on_done_;
  StreamId id_ = 0;
  v1::RouterMessage incoming_;  // of the read under way
  v1::WorkerMessage outgoing_;  // of the write under way

  absl::Mutex mutex_;
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;      // Finish was called
  bool reported_end_ ABSL_GUARDED_BY(mutex_) = false;  // the loop knows
  int issuing_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t unconsumed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> end_status_ ABSL_GUARDED_BY(mutex_);  // set: Finish with it once the outbox is empty
  std::shared_ptr<WorkStream> self_;
};

}  // namespace

grpc::ServerBidiReactor<v1::RouterMessage, v1::WorkerMessage>* WorkService::Work(grpc::CallbackServerContext* context) {
  {
    absl::MutexLock lock(&mutex_);
    ++streams_;
  }
  auto stream = std::make_shared<WorkStream>(*context, loop_, limits_, [this] {
    absl::MutexLock lock(&mutex_);
    --streams_;
  });
  stream->Begin();
  return stream.get();
}

bool WorkService::AwaitEnds(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(this, &WorkService::NoStreams), timeout);
}

}  // namespace sluice::worker
