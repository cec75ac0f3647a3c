#include "kernels/cpu/int8/int8_weight.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_storage.h"

namespace sluice::kernels::cpu {

Int8Panels Int8Weight::view() const {
  return {.data = data(), .scales = scales(), .offsets = offsets(), .k = PadInt8(cols()), .rows = rows()};
}

size_t Int8Weight::Bytes(int64_t rows, int64_t cols) {
  const size_t padded_rows = size_t((rows + kPanelRows - 1) / kPanelRows * kPanelRows);
  return padded_rows * (size_t(PadInt8(cols)) + sizeof(float) + sizeof(int32_t));
}

absl::StatusOr<std::unique_ptr<Int8Weight>> Int8Weight::Pack(const HostTensor& tensor, PackedMemory memory,
                                                             const KernelTable& floats, const Int8Table& kernels,
                                                             ThreadPool& pool) {
  if (absl::Status s = CheckTensor(tensor); !s.ok()) return s;
  if (tensor.cols > kMostInt8Columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", tensor.cols, " elements; int8 mode sums at most ", kMostInt8Columns));
  }
  std::unique_ptr<Int8Weight> weight(new Int8Weight(tensor.rows, tensor.cols));
  weight->memory_ = memory.data;
  if (memory.data == nullptr) {
    const size_t bytes = Bytes(tensor.rows, tensor.cols);
    auto own = HostMemory::Map(bytes);
    if (!own) return absl::ResourceExhaustedError(absl::StrCat("no memory for a packed tensor of ", bytes, " bytes"));
    weight->own_ = std::move(*own);
    weight->memory_ = weight->own_.data();
  }
  if (memory.filled) return weight;
  const int64_t k = PadInt8(tensor.cols);
  pool.RunRanges(weight->panels(), 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(size_t(k) + kRowPad);
    std::vector<uint8_t> rounded(static_cast<size_t>(k));
    for (int64_t p = begin; p < end; ++p) {
      weight->PackPanel(tensor, floats, kernels, p, row.data(), rounded.data());
    }
  });
  return weight;
}

void Int8Weight::PackPanel(const HostTensor& tensor, const KernelTable& floats, const Int8Table& kernels, int64_t panel,
                           float* row, uint8_t* bytes) {
  const int64_t k = PadInt8(cols());
  const size_t row_bytes = RowBytes(tensor.type, cols());
  int8_t* to = data() + panel * kPanelRows * k;
  for (int64_t n = 0; n < kPanelRows && panel * kPanelRows + n < rows(); ++n) {
    const int64_t at = panel * kPanelRows + n;
    std::fill(row, row + k, 0.0f);
    floats.dequantize(tensor.type, static_cast<const uint8_t*>(tensor.data) + size_t(at) * row_bytes, cols(), row);
    kernels.rotate(rotation_, row);
    scales()[at] = kernels.round(row, rotation_.vectors, bytes, k) / float(rotation_.gain);
    int32_t sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int value = int(bytes[i]) - 128;
      to[i / 4 * (4 * kPanelRows) + n * 4 + i % 4] = int8_t(value);
      sum += value;
    }
    offsets()[at] = 128 * sum;
  }
}

}  // namespace sluice::kernels::cpu
