// Findings in words: every one goes to stderr, and the latest are kept for tests. Safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace host_cuda {

void Report(const std::string& text);

// The findings since the last call, oldest first (at most 256).
std::vector<std::string> TakeReports();

}  // namespace host_cuda
