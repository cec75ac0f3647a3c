// `sluice generate`: sends one prompt and streams the answer.
#pragma once

#include "cli/generate_options.h"

namespace sluice::cli {

// Text goes to standard output as it comes (--json: one object at the end instead), statistics and errors to standard
// error. Ctrl-C cancels the call. Returns the exit code.
int RunGenerate(GenerateOptions options);

}  // namespace sluice::cli
