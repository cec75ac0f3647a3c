#include "router/event_loop.h"

#include <chrono>
#include <utility>

#include "absl/synchronization/notification.h"

namespace sluice::router {

absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

void EventLoop::Start() {
  thread_ = std::thread([this] { Run(); });
}

void EventLoop::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Post(Event event) {
  absl::MutexLock lock(&mutex_);
  mailbox_.emplace_back(std::move(event));
}

void EventLoop::Ask(Query query) {
  absl::MutexLock lock(&mutex_);
  mailbox_.emplace_back(std::move(query));
}

void EventLoop::Barrier() {
  absl::Notification done;
  Ask([&done](const RouterCore&) { done.Notify(); });
  done.WaitForNotification();
}

absl::Duration EventLoop::BusyFor() const {
  const int64_t since = busy_since_;
  return since == 0 ? absl::ZeroDuration() : MonotonicNow() - absl::FromUnixNanos(since);
}

void EventLoop::Deliver(Mail mail) {
  if (Query* query = std::get_if<Query>(&mail)) return (*query)(*core_);
  for (Action& action : core_->Handle(std::get<Event>(std::move(mail)), MonotonicNow())) execute_(action);
}

void EventLoop::Run() {
  const auto has_mail = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !mailbox_.empty(); };
  while (true) {
    std::vector<Mail> mails;
    busy_since_ = 0;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&has_mail), core_->NextDeadline() - MonotonicNow());
      mails.swap(mailbox_);
      if (mails.empty() && stopping_) return;
    }
    busy_since_ = absl::ToUnixNanos(MonotonicNow());
    for (Mail& mail : mails) Deliver(std::move(mail));
    if (core_->NextDeadline() <= MonotonicNow()) Deliver(Event(Tick{}));
  }
}

}  // namespace sluice::router
