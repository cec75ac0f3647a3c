#include "kernels/dtype.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::kernels {
namespace {

constexpr std::array<DTypeInfo, kNumDTypes> kInfo = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
}};

}  // namespace

const DTypeInfo& Info(DType type) { return kInfo[static_cast<size_t>(type)]; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

size_t RowBytes(DType type, int64_t cols) {
  const DTypeInfo& info = Info(type);
  return static_cast<size_t>(cols / info.block_elements) * info.block_bytes;
}

absl::Status CheckTensor(const HostTensor& t) {
  const DTypeInfo& info = Info(t.type);
  if (t.data == nullptr || t.rows <= 0 || t.cols <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("tensor of ", t.rows, " x ", t.cols, " holds nothing"));
  }
  if (t.cols % info.block_elements != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", t.cols, " elements are not whole ",
                                                   std::string(info.name), " blocks of ", info.block_elements));
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels
