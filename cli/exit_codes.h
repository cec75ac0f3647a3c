// The exit codes of `sluice`, also listed in its --help. Scripts depend on them.
#pragma once

namespace sluice::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitServer = 1;         // unreachable, unavailable, deadline, or any other error of the server
inline constexpr int kExitUsage = 2;          // wrong flags, or the server refused an argument
inline constexpr int kExitInterrupted = 130;  // Ctrl-C; the request was cancelled

}  // namespace sluice::cli
