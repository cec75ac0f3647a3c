#include "router/event_loop.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace sluice::router {
namespace {

TEST(EventLoopTest, TellsHowLongItHasBeenBusy) {
  RouterCore core(CoreOptions{});
  EventLoop loop(&core, [](Action&) {});
  loop.Start();
  loop.Barrier();
  const auto idle = [&] { return loop.BusyFor() == absl::ZeroDuration(); };
  for (int i = 0; i < 2000 && !idle(); ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(idle());
  absl::Notification began, go_on;
  loop.Ask([&](const RouterCore&) {
    began.Notify();
    go_on.WaitForNotification();
  });
  began.WaitForNotification();
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_GE(loop.BusyFor(), absl::Milliseconds(20));
  go_on.Notify();
  loop.Barrier();
  for (int i = 0; i < 2000 && !idle(); ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(idle());
}

}  // namespace
}  // namespace sluice::router
