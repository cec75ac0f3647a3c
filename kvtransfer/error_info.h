// absl::Status <-> the wire's ErrorInfo.
#pragma once

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace sluice::kvtransfer {

v1::ErrorInfo ToErrorInfo(const absl::Status& status, v1::ErrorReason reason);
absl::Status FromErrorInfo(const v1::ErrorInfo& error);  // code 0 is OK

}  // namespace sluice::kvtransfer
