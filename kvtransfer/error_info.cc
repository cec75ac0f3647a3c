#include "kvtransfer/error_info.h"

#include <string>

namespace sluice::kvtransfer {

v1::ErrorInfo ToErrorInfo(const absl::Status& status, v1::ErrorReason reason) {
  v1::ErrorInfo error;
  error.set_code(int(status.code()));
  error.set_reason(reason);
  error.set_message(std::string(status.message()));
  return error;
}

absl::Status FromErrorInfo(const v1::ErrorInfo& error) {
  return absl::Status(static_cast<absl::StatusCode>(error.code()), error.message());
}

}  // namespace sluice::kvtransfer
