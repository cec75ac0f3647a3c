// absl::Status <-> the wire's ErrorInfo. A status that came from an ErrorInfo remembers its reason, so that it survives
// any number of hops.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/worker.pb.h"

namespace sluice::kvtransfer {

// `reason` is for a status that knows none.
v1::ErrorInfo ToErrorInfo(const absl::Status& status, v1::ErrorReason reason);
absl::Status FromErrorInfo(const v1::ErrorInfo& error);  // code 0 is OK

// UNAVAILABLE with the reason WORKER_LOST: the other process is gone, or not to be reached.
absl::Status PeerLost(absl::string_view what);

}  // namespace sluice::kvtransfer
