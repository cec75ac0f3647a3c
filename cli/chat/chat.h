// `sluice chat`: a conversation with the model.
#pragma once

#include <string>

#include "cli/generate_options.h"

namespace sluice::cli {

struct ChatOptions {
  GenerateOptions generate;  // router and sampling
  std::string system;
};

// Reads questions from standard input, a line each, and streams the answers. Without a terminal the first error ends
// it. Returns the exit code.
int RunChat(const ChatOptions& options);

}  // namespace sluice::cli
