// The command line of `sluice`: subcommands, flags and help.
#pragma once

namespace sluice::cli {

// Parses, runs the subcommand and returns the exit code (exit_codes.h).
int RunCommandLine(int argc, const char* const* argv);

}  // namespace sluice::cli
