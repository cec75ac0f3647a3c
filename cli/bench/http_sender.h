// Requests over OpenAI's HTTP API, streamed: one thread, connections that are used again.
//
// A token that is no text yet (half a character) makes no event there, so gaps are between events, and the number of
// tokens is the one of `usage`.
#pragma once

#include <memory>

#include "cli/bench/http_words.h"
#include "cli/bench/sender.h"

namespace sluice::cli::bench {

// UNAVAILABLE where nobody answers.
absl::StatusOr<std::unique_ptr<Sender>> OpenHttpSender(HttpApi api, const SenderOptions& options);

}  // namespace sluice::cli::bench
