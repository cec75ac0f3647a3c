// Whether KV of one worker means the same to another.
#pragma once

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace sluice::kvtransfer {

inline constexpr uint32_t kTransferProtocolVersion = 1;

// OK, or FAILED_PRECONDITION naming the first thing that differs and both values. Checked at registration and again by
// the decode side of each pair.
absl::Status CheckFit(const v1::Fingerprint& prefill, const v1::Fingerprint& decode);

}  // namespace sluice::kvtransfer
