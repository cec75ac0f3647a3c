#include "cli/top/top.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/channel.h"
#include "cli/exit_codes.h"
#include "cli/output.h"
#include "cli/top/frame.h"
#include "proto/serving.grpc.pb.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRequests = 1000;  // that the times are of
constexpr absl::Duration kPatience = absl::Seconds(2);

double Now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// The router, connected to anew where that is needed.
class Router {
 public:
  explicit Router(std::string address) : address_(std::move(address)) {}

  absl::StatusOr<Sample> Ask() {
    if (stub_ == nullptr) {
      // A channel that has failed would wait longer each time; a new one tries at once.
      absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(address_, kPatience, /*own_connection=*/true);
      if (!channel.ok()) return channel.status();
      stub_ = v1::Cluster::NewStub(*channel);
      lists_ = true;
    }
    absl::StatusOr<Sample> sample = AskConnected();
    if (!sample.ok()) stub_.reset();
    return sample;
  }

 private:
  absl::StatusOr<Sample> AskConnected() {
    Sample sample;
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kPatience);
    {
      grpc::ClientContext context;
      context.set_deadline(deadline);
      const grpc::Status status = stub_->GetState(&context, v1::GetStateRequest(), &sample.state);
      if (!status.ok()) return absl::UnavailableError(DescribeError(status));
    }
    sample.at_s = Now();
    if (!lists_) return sample;
    grpc::ClientContext context;
    context.set_deadline(deadline);
    v1::ListRequestsRequest request;
    request.set_limit(kMostRequests);
    v1::RequestList list;
    const grpc::Status status = stub_->ListRequests(&context, request, &list);
    if (status.ok()) sample.requests = std::move(list);
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) lists_ = false;
    return sample;
  }

  const std::string address_;
  std::unique_ptr<v1::Cluster::Stub> stub_;
  bool lists_ = true;
};

// A screen of its own while it lives, with single keys as input.
class Terminal {
 public:
  explicit Terminal(bool full_screen) : full_screen_(full_screen) {
    if (!full_screen_) return;
    std::cout << "\x1b[?1049h\x1b[?25l" << std::flush;
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios keys = before_;
    keys.c_lflag &= ~tcflag_t(ICANON | ECHO);
    restore_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  ~Terminal() {
    if (restore_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    if (full_screen_) std::cout << "\x1b[?25h\x1b[?1049l" << std::flush;
  }
  bool full_screen() const { return full_screen_; }

  absl::Status Show(const std::string& frame) const {
    if (!full_screen_) return Print(frame + "\n");
    winsize size{24, 80, 0, 0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    if (size.ws_row == 0 || size.ws_col == 0) size = {24, 80, 0, 0};  // a terminal that was told no size
    return Print(Screen(frame, size.ws_row, size.ws_col));
  }

 private:
  const bool full_screen_;
  bool restore_ = false;
  termios before_{};
};

// Waits for the next view. The exit code, where it shall end instead.
std::optional<int> Wait(int signals, bool keys, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    pollfd fds[2] = {{signals, POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(fds, 2, int(left)) <= 0) continue;
    signalfd_siginfo info;
    if ((fds[0].revents & POLLIN) != 0 && read(signals, &info, sizeof(info)) == ssize_t(sizeof(info))) {
      // At a terminal Ctrl-C is how one leaves.
      if (info.ssi_signo == SIGINT && keys) return kExitOk;
      if (info.ssi_signo != SIGWINCH) return 128 + int(info.ssi_signo);
      return std::nullopt;
    }
    char key = 0;
    if (fds[1].revents == 0) continue;
    if (read(STDIN_FILENO, &key, 1) != 1) keys = false;
    if (key == 'q' || key == 'Q') return kExitOk;
  }
}

int OpenSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGWINCH}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

int Complain(const absl::Status& status) {
  std::cerr << "sluice: " << status.message() << "\n";
  return kExitServer;
}

std::string View(const TopOptions& options, const Sample& now, const Sample* before) {
  if (!options.json) return TopFrame(now, before, options.router, options.window_s);
  return TopJson(now, before, options.window_s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

int RunTop(const TopOptions& options) {
  const int signals = OpenSignals();  // it lives as long as the process
  Router router(options.router);
  const bool full = !options.once && !options.json && isatty(STDOUT_FILENO) != 0 && isatty(STDIN_FILENO) != 0;
  std::optional<Sample> before;
  std::string frame;
  double lost_since = 0;
  const Terminal terminal(full);
  for (bool first = true;; first = false) {
    const Clock::time_point began = Clock::now();
    absl::StatusOr<Sample> now = router.Ask();
    if (now.ok()) {
      lost_since = 0;
      frame = View(options, *now, before ? &*before : nullptr);
      before = *std::move(now);
    } else {
      if (options.once) return Complain(now.status());
      if (lost_since == 0) lost_since = Now();
      before.reset();
    }
    const std::string lost =
        lost_since == 0 ? ""
                        : absl::StrFormat("%s; asked again for %.0f s\n", now.status().message(), Now() - lost_since);
    if (options.json && !lost.empty()) std::cerr << "sluice: " << lost;
    // Rates need two samples, so a single view is the second one.
    if (!(options.once && first) && (!options.json || lost.empty())) {
      const absl::Status shown =
          terminal.Show(lost.empty() ? frame : absl::StrCat(lost, frame.empty() ? "" : "\nbefore that:\n", frame));
      if (!shown.ok()) return Complain(shown);
      if (options.once) return kExitOk;
    }
    const auto interval =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval_s));
    if (const std::optional<int> code = Wait(signals, terminal.full_screen(), began + interval)) return *code;
  }
}

}  // namespace sluice::cli
