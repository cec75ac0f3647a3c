// main() of a role: options, signals, the worker's life, the exit code.
#pragma once

#include "worker/options.h"
#include "worker/role_factory.h"

namespace sluice::worker {

// Prints one line to stdout once it serves; every error is one line on stderr. 0 after a clean end, 2 for bad flags, 1
// for everything else.
int WorkerMain(const RoleDescription& role, const RoleFactory& make_role, int argc, char** argv);

}  // namespace sluice::worker
