// `sluice bench`: measures a cluster under load.
#pragma once

#include "cli/bench/options.h"

namespace sluice::cli::bench {

// The table goes to standard output, progress and errors to standard error. Returns the exit code.
int RunBench(const BenchOptions& options);

}  // namespace sluice::cli::bench
