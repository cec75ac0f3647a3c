// The one thread that runs the router's core: events in through a mailbox, actions out through a callback.
//
// Promises: events of one poster are handled in their order; Post never blocks on the core; the core's timers fire. The
// mailbox is unbounded: what fills it is bounded where it comes from (open calls, worker streams).
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/core.h"

namespace sluice::router {

// The monotonic clock as absl::Time; only differences mean anything.
absl::Time MonotonicNow();

class EventLoop {
 public:
  using Execute = std::function<void(Action&)>;
  using Query = std::function<void(const RouterCore&)>;

  // `core` must outlive the loop. `execute` runs on the loop's thread and may Post.
  EventLoop(RouterCore* core, Execute execute) : core_(core), execute_(std::move(execute)) {}
  ~EventLoop() { Stop(); }

  void Start();
  void Stop();  // handles what is in the mailbox, then ends the thread; idempotent

  void Post(Event event);
  void Ask(Query query);  // runs on the loop's thread, in order with the events
  void Barrier();         // returns when everything posted before has been handled

  // How long the loop has been busy with what it took from the mailbox last; zero while it waits. Any thread.
  absl::Duration BusyFor() const;

 private:
  using Mail = std::variant<Event, Query>;

  void Run();
  void Deliver(Mail mail);

  RouterCore* core_;
  Execute execute_;
  absl::Mutex mutex_;
  std::vector<Mail> mailbox_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> busy_since_ = 0;  // nanoseconds of MonotonicNow; 0: waiting
  std::thread thread_;
};

}  // namespace sluice::router
