#include "kernels/cpu/int8/quantised_rows.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace sluice::kernels::cpu {

absl::StatusOr<QuantisedRows> QuantisedRows::Create(int64_t max_rows, int64_t max_cols) {
  QuantisedRows rows;
  rows.max_cols_ = max_cols;
  const size_t bytes = size_t(max_rows) * size_t(PadInt8(max_cols));
  auto memory = HostMemory::Map(bytes);
  if (!memory) return absl::ResourceExhaustedError(absl::StrCat("no memory for quantised rows of ", bytes, " bytes"));
  rows.memory_ = std::move(*memory);
  rows.scales_.resize(size_t(max_rows));
  return rows;
}

void QuantisedRows::Use(const Int8Weight& w) {
  CHECK_LE(w.cols(), max_cols_) << "wider than ContextLimits says";
  padded_ = PadInt8(w.cols());
  rotation_ = &w.rotation();
}

}  // namespace sluice::kernels::cpu
