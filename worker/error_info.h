// Errors on the wire: an absl status code, a reason that machines act on, and one line for people.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace sluice::worker {

// The code belongs to the reason (docs/architecture.md, "Life of a request").
absl::StatusCode CodeOf(v1::ErrorReason reason);

v1::ErrorInfo MakeError(v1::ErrorReason reason, std::string message);

// The reason an engine's refusal stands for: INVALID_ARGUMENT, FAILED_PRECONDITION (never fits the pool) and
// RESOURCE_EXHAUSTED (not now) of Engine::Add; anything else is INTERNAL_ERROR.
v1::ErrorInfo ErrorOfRefusedAdd(const absl::Status& status);

// What the requests of an engine fail with when a step fails: WORKER_LOST if a rank of the instance is gone
// (UNAVAILABLE), which another worker can make good; else INTERNAL_ERROR.
v1::ErrorInfo ErrorOfFailedEngine(const absl::Status& status);

// What a request that loses its KV transfer fails with: the reason that the other side gave, CHECKSUM_MISMATCH or
// TRANSFER_FAILED.
v1::ErrorInfo ErrorOfTransfer(const absl::Status& status);

}  // namespace sluice::worker
