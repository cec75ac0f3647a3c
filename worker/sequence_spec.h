// From the wire's SequenceSpec to the engine's request.
//
// The router validates what clients send; a worker still checks everything it uses, because a wrong number here would
// be a wrong answer or a dead process. What this version cannot do is refused by name, never ignored.
#pragma once

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "proto/worker.pb.h"

namespace sluice::worker {

// INVALID_ARGUMENT whose message starts with the field. `vocab`: token ids lie in [0, vocab).
absl::StatusOr<engine::EngineRequest> ToEngineRequest(const v1::SequenceSpec& spec, int vocab);

}  // namespace sluice::worker
