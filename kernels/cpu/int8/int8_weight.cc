#include "kernels/cpu/int8/int8_weight.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_storage.h"

namespace sluice::kernels::cpu {

Int8Panels Int8Weight::view() const {
  return {.data = reinterpret_cast<const int8_t*>(data_.data()),
          .scales = scales_.data(),
          .offsets = offsets_.data(),
          .k = PadInt8(cols()),
          .rows = rows()};
}

absl::StatusOr<std::unique_ptr<Int8Weight>> Int8Weight::Pack(const HostTensor& tensor, const KernelTable& floats,
                                                             const Int8Table& kernels, ThreadPool& pool) {
  if (absl::Status s = CheckTensor(tensor); !s.ok()) return s;
  std::unique_ptr<Int8Weight> weight(new Int8Weight(tensor.rows, tensor.cols));
  const int64_t k = PadInt8(tensor.cols), panels = weight->panels();
  const size_t bytes = size_t(panels) * kPanelRows * size_t(k);
  auto memory = HostMemory::Map(bytes);
  if (!memory) return absl::ResourceExhaustedError(absl::StrCat("no memory for a packed tensor of ", bytes, " bytes"));
  weight->data_ = std::move(*memory);
  weight->scales_.resize(size_t(panels) * kPanelRows);
  weight->offsets_.resize(size_t(panels) * kPanelRows);
  const Rotation rotation = PlanRotation(tensor.cols);
  pool.RunRanges(panels, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(size_t(k) + kRowPad);
    std::vector<uint8_t> rounded(static_cast<size_t>(k));
    for (int64_t p = begin; p < end; ++p) {
      weight->PackPanel(tensor, floats, kernels, rotation, p, row.data(), rounded.data());
    }
  });
  return weight;
}

void Int8Weight::PackPanel(const HostTensor& tensor, const KernelTable& floats, const Int8Table& kernels,
                           const Rotation& rotation, int64_t panel, float* row, uint8_t* bytes) {
  const int64_t k = PadInt8(cols());
  const size_t row_bytes = RowBytes(tensor.type, cols());
  int8_t* to = reinterpret_cast<int8_t*>(data_.data()) + panel * kPanelRows * k;
  for (int64_t n = 0; n < kPanelRows && panel * kPanelRows + n < rows(); ++n) {
    const int64_t at = panel * kPanelRows + n;
    std::fill(row, row + k, 0.0f);
    floats.dequantize(tensor.type, static_cast<const uint8_t*>(tensor.data) + size_t(at) * row_bytes, cols(), row);
    kernels.rotate(rotation, row);
    scales_[size_t(at)] = kernels.round(row, rotation.vectors, bytes, k) / float(rotation.gain);
    int32_t sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int value = int(bytes[i]) - 128;
      to[i / 4 * (4 * kPanelRows) + n * 4 + i % 4] = int8_t(value);
      sum += value;
    }
    offsets_[size_t(at)] = 128 * sum;
  }
}

}  // namespace sluice::kernels::cpu
