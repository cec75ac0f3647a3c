// `sluice top`: a live view of a cluster.
#pragma once

#include <string>

namespace sluice::cli {

struct TopOptions {
  std::string router = "localhost:50051";
  double interval_s = 1;
  double window_s = 60;
  bool once = false;
  bool json = false;
};

// At a terminal a screen that is drawn anew until q or Ctrl-C; elsewhere, and with --json, one view after the other.
// A router that goes away is asked again until it is back, but for --once. Returns the exit code.
int RunTop(const TopOptions& options);

}  // namespace sluice::cli
