#include "kernels/cpu/thread_scratch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::kernels::cpu {

absl::Status ThreadScratch::Hold(int64_t cols, int64_t head_dim) {
  if (cols <= cols_ && head_dim <= head_dim_) return absl::OkStatus();
  cols_ = std::max(cols, cols_);
  head_dim_ = std::max(head_dim, head_dim_);
  const size_t bytes = size_t(floats_(cols_, head_dim_)) * sizeof(float);
  for (HostMemory& scratch : memory_) {
    auto memory = HostMemory::Map(bytes);
    if (!memory) return absl::ResourceExhaustedError(absl::StrCat("no memory for scratch of ", bytes, " bytes"));
    scratch = std::move(*memory);
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
