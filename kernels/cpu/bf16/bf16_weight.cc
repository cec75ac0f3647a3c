#include "kernels/cpu/bf16/bf16_weight.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/products.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cpu {

size_t Bf16Weight::Bytes(int64_t rows, int64_t cols) {
  return size_t((rows + kPanelRows - 1) / kPanelRows * kPanelRows) * size_t(PadBf16(cols)) * sizeof(uint16_t);
}

absl::StatusOr<std::unique_ptr<Bf16Weight>> Bf16Weight::Pack(const HostTensor& tensor, PackedMemory memory,
                                                             const KernelTable& floats, ThreadPool& pool) {
  if (absl::Status s = CheckTensor(tensor); !s.ok()) return s;
  std::unique_ptr<Bf16Weight> weight(new Bf16Weight(tensor.rows, tensor.cols));
  weight->memory_ = reinterpret_cast<uint16_t*>(memory.data);
  if (memory.data == nullptr) {
    const size_t bytes = Bytes(tensor.rows, tensor.cols);
    auto own = HostMemory::Map(bytes);
    if (!own) return absl::ResourceExhaustedError(absl::StrCat("no memory for a packed tensor of ", bytes, " bytes"));
    weight->own_ = std::move(*own);
    weight->memory_ = reinterpret_cast<uint16_t*>(weight->own_.data());
  }
  if (memory.filled) return weight;
  pool.RunRanges(PanelsOf(*weight), 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(size_t(PadRow(tensor.cols)));
    for (int64_t p = begin; p < end; ++p) weight->PackPanel(tensor, floats, p, row.data());
  });
  return weight;
}

// Rows and columns past the matrix stay zero.
void Bf16Weight::PackPanel(const HostTensor& tensor, const KernelTable& floats, int64_t panel, float* row) {
  const size_t row_bytes = RowBytes(tensor.type, cols());
  uint16_t* to = memory_ + panel * kPanelRows * PadBf16(cols());
  for (int n = 0; n < kPanelRows && panel * kPanelRows + n < rows(); ++n) {
    floats.dequantize(tensor.type,
                      static_cast<const uint8_t*>(tensor.data) + size_t(panel * kPanelRows + n) * row_bytes, cols(),
                      row);
    for (int64_t k = 0; k < cols(); ++k) to[k / 2 * (2 * kPanelRows) + n * 2 + k % 2] = F32ToBF16(row[k]);
  }
}

}  // namespace sluice::kernels::cpu
