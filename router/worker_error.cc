#include "router/worker_error.h"

#include "absl/strings/str_cat.h"

namespace sluice::router {

bool MayPass(pb::ErrorReason reason) {
  switch (reason) {
    case pb::NO_BLOCKS:
    case pb::OVERLOADED:
    case pb::DRAINING_WORKER:
    case pb::STALE_INCARNATION:
      return true;
    default:
      return false;
  }
}

bool MayMove(pb::ErrorReason reason) {
  switch (reason) {
    case pb::NO_BLOCKS:
    case pb::OVERLOADED:
    case pb::LEASE_EXPIRED:
    case pb::LEASE_UNKNOWN:
    case pb::STALE_INCARNATION:
    case pb::DRAINING_WORKER:
    case pb::WORKER_LOST:
    case pb::TRANSFER_FAILED:
    case pb::CHECKSUM_MISMATCH:
    case pb::INCOMPATIBLE:
    case pb::INTERNAL_ERROR:
    case pb::CANCELLED_BY_CLIENT:  // by the other worker: where the router has cancelled, it listens no more
      return true;
    default:
      return false;
  }
}

absl::Status ToStatus(const pb::ErrorInfo& error, const std::string& worker) {
  absl::StatusCode code = static_cast<absl::StatusCode>(error.code());
  switch (error.reason()) {
    case pb::INVALID_REQUEST:
    case pb::NEVER_FITS:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case pb::DEADLINE:
      code = absl::StatusCode::kDeadlineExceeded;
      break;
    case pb::LEASE_EXPIRED:
    case pb::LEASE_UNKNOWN:
    case pb::STALE_INCARNATION:
    case pb::DRAINING_WORKER:
    case pb::WORKER_LOST:
      code = absl::StatusCode::kUnavailable;
      break;
    default:
      break;
  }
  // A worker that cancels on its own, or fails with no code, has a defect; the client did not cancel.
  if (code == absl::StatusCode::kOk || code == absl::StatusCode::kCancelled || error.code() < 0 || error.code() > 16) {
    code = absl::StatusCode::kInternal;
  }
  const std::string& message = error.message();
  if (code == absl::StatusCode::kInvalidArgument) return absl::Status(code, message);
  return absl::Status(code,
                      absl::StrCat("worker ", worker, ": ", message.empty() ? "failed without a reason" : message));
}

}  // namespace sluice::router
