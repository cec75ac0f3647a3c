// Ctrl-C as a callback on an ordinary thread, where anything may be called.
//
// Block() must run before the first other thread starts (gRPC's included), so that all of them inherit the mask.
#pragma once

#include <functional>
#include <thread>

namespace sluice::cli {

class Interrupt {
 public:
  // Blocks SIGINT and SIGTERM in this thread and its descendants.
  static void Block();

  // Calls `on_signal` once, with the signal's number, when one of the two arrives.
  explicit Interrupt(std::function<void(int)> on_signal);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  void Watch();

  std::function<void(int)> on_signal_;
  int signal_fd_;
  int stop_fd_;
  std::thread thread_;
};

}  // namespace sluice::cli
