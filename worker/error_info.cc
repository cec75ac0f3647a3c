#include "worker/error_info.h"

#include <utility>

#include "kvtransfer/error_info.h"

namespace sluice::worker {

absl::StatusCode CodeOf(v1::ErrorReason reason) {
  switch (reason) {
    case v1::INVALID_REQUEST:
      return absl::StatusCode::kInvalidArgument;
    case v1::NO_BLOCKS:
    case v1::OVERLOADED:
      return absl::StatusCode::kResourceExhausted;
    case v1::CANCELLED_BY_CLIENT:
      return absl::StatusCode::kCancelled;
    case v1::DEADLINE:
      return absl::StatusCode::kDeadlineExceeded;
    case v1::LEASE_EXPIRED:
    case v1::TRANSFER_FAILED:
      return absl::StatusCode::kAborted;
    case v1::LEASE_UNKNOWN:
      return absl::StatusCode::kNotFound;
    case v1::NEVER_FITS:
    case v1::STALE_INCARNATION:
    case v1::INCOMPATIBLE:
      return absl::StatusCode::kFailedPrecondition;
    case v1::DRAINING_WORKER:
    case v1::WORKER_LOST:
    case v1::NO_WORKER:
      return absl::StatusCode::kUnavailable;
    case v1::CHECKSUM_MISMATCH:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

v1::ErrorInfo MakeError(v1::ErrorReason reason, std::string message) {
  v1::ErrorInfo error;
  error.set_code(static_cast<int>(CodeOf(reason)));
  error.set_reason(reason);
  error.set_message(std::move(message));
  return error;
}

v1::ErrorInfo ErrorOfRefusedAdd(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsInvalidArgument(status)) return MakeError(v1::INVALID_REQUEST, message);
  if (absl::IsFailedPrecondition(status)) return MakeError(v1::NEVER_FITS, message);
  if (absl::IsResourceExhausted(status)) return MakeError(v1::NO_BLOCKS, message);
  return MakeError(v1::INTERNAL_ERROR, message);
}

v1::ErrorInfo ErrorOfFailedEngine(const absl::Status& status) {
  return MakeError(absl::IsUnavailable(status) ? v1::WORKER_LOST : v1::INTERNAL_ERROR, std::string(status.message()));
}

v1::ErrorInfo ErrorOfTransfer(const absl::Status& status) {
  const v1::ErrorReason unnamed = absl::IsDataLoss(status) ? v1::CHECKSUM_MISMATCH : v1::TRANSFER_FAILED;
  const v1::ErrorInfo named = kvtransfer::ToErrorInfo(status, unnamed);
  return MakeError(named.reason(), named.message());
}

}  // namespace sluice::worker
