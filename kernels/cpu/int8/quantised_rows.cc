#include "kernels/cpu/int8/quantised_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/int8/int8_weight.h"

namespace sluice::kernels::cpu {

absl::StatusOr<std::unique_ptr<QuantisedRows>> QuantisedRows::Create(const Int8Table& kernels, int64_t max_rows,
                                                                     int64_t max_cols) {
  const size_t bytes = size_t(max_rows) * size_t(PadInt8(max_cols));
  auto memory = HostMemory::Map(bytes);
  if (!memory) return absl::ResourceExhaustedError(absl::StrCat("no memory for quantised rows of ", bytes, " bytes"));
  return std::unique_ptr<QuantisedRows>(new QuantisedRows(kernels, max_rows, max_cols, std::move(*memory)));
}

void QuantisedRows::Use(const Weight& w) {
  CHECK_LE(w.cols(), max_cols_) << "wider than ContextLimits says";
  padded_ = PadInt8(w.cols());
  rotation_ = &static_cast<const Int8Weight&>(w).rotation();
}

}  // namespace sluice::kernels::cpu
