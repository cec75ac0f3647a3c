// Requests over sluice.v1.Inference/Generate: one thread reads everything.
#pragma once

#include <memory>

#include "cli/bench/sender.h"

namespace sluice::cli::bench {

// UNAVAILABLE where no router answers.
absl::StatusOr<std::unique_ptr<Sender>> OpenGrpcSender(const SenderOptions& options);

}  // namespace sluice::cli::bench
