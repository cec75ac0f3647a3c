// What a worker's error means to the router and to its client. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "router/events.h"

namespace sluice::router {

// A refusal for this reason may be another one's or a later moment's yes.
bool MayPass(pb::ErrorReason reason);

// After an error for this reason another attempt, elsewhere first, makes sense: the request itself is not to blame, as
// far as anybody can tell.
bool MayMove(pb::ErrorReason reason);

// A worker's error as the client should see it: its class survives the hop.
absl::Status ToStatus(const pb::ErrorInfo& error, const std::string& worker);

}  // namespace sluice::router
