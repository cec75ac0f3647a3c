#include "kvtransfer/error_info.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice::kvtransfer {
namespace {

constexpr char kReason[] = "sluice.v1.ErrorReason";

}  // namespace

v1::ErrorInfo ToErrorInfo(const absl::Status& status, v1::ErrorReason reason) {
  v1::ErrorInfo error;
  error.set_code(int(status.code()));
  int known = 0;
  const absl::optional<absl::Cord> payload = status.GetPayload(kReason);
  const bool has = payload && absl::SimpleAtoi(std::string(*payload), &known) && v1::ErrorReason_IsValid(known);
  error.set_reason(has ? static_cast<v1::ErrorReason>(known) : reason);
  error.set_message(std::string(status.message()));
  return error;
}

absl::Status FromErrorInfo(const v1::ErrorInfo& error) {
  absl::Status status(static_cast<absl::StatusCode>(error.code()), error.message());
  if (error.reason() != v1::ERROR_REASON_UNSPECIFIED) {
    status.SetPayload(kReason, absl::Cord(absl::StrCat(int{error.reason()})));
  }
  return status;
}

absl::Status PeerLost(absl::string_view what) {
  v1::ErrorInfo error;
  error.set_code(int(absl::StatusCode::kUnavailable));
  error.set_reason(v1::WORKER_LOST);
  error.set_message(std::string(what));
  return FromErrorInfo(error);
}

}  // namespace sluice::kvtransfer
