#include "kernels/cpu/cpu_storage.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/dequant.h"

namespace sluice::kernels {
namespace {

constexpr size_t kLine = 64;

size_t LayerStride(const KvLayout& l, int num_blocks) {
  return (size_t(num_blocks) * l.block_bytes() + kLine - 1) / kLine * kLine;
}

}  // namespace

size_t CpuKvPoolBytes(const KvLayout& layout, int num_blocks) {
  return size_t(layout.num_layers) * LayerStride(layout, num_blocks) + kLine;  // kernels read whole vectors
}

}  // namespace sluice::kernels

namespace sluice::kernels::cpu {

CpuWeight::CpuWeight(const HostTensor& tensor)
    : Weight(tensor.rows, tensor.cols), tensor_(tensor), row_bytes_(int64_t(RowBytes(tensor.type, tensor.cols))) {
  if (tensor.rows == 1) {
    vector_.resize(size_t(tensor.cols));
    DequantizeRow(tensor.type, tensor.data, tensor.cols, vector_.data());
  }
}

absl::StatusOr<std::unique_ptr<CpuWeight>> CpuWeight::Pack(const HostTensor& t) {
  if (absl::Status s = CheckTensor(t); !s.ok()) return s;
  return std::unique_ptr<CpuWeight>(new CpuWeight(t));
}

const float* CpuWeight::f32_row(int64_t i) const {
  if (!vector_.empty()) return vector_.data();
  CHECK(type() == DType::kF32) << "a table that is not F32";
  CHECK(reinterpret_cast<uintptr_t>(tensor_.data) % alignof(float) == 0) << "a table that is not aligned";
  return reinterpret_cast<const float*>(row(i));
}

absl::StatusOr<std::unique_ptr<CpuActivation>> CpuActivation::Create(int max_rows, int cols) {
  const size_t bytes = size_t(max_rows) * PadRow(cols) * sizeof(float);
  auto memory = HostMemory::Map(bytes);
  if (!memory) return absl::ResourceExhaustedError(absl::StrCat("no memory for an activation of ", bytes, " bytes"));
  return std::unique_ptr<CpuActivation>(new CpuActivation(cols, std::move(*memory)));
}

absl::StatusOr<ScratchRows> ScratchRows::Create(int max_rows, int max_cols) {
  ScratchRows scratch;
  scratch.max_cols_ = max_cols;
  const size_t bytes = size_t(max_rows) * size_t(PadRow(max_cols)) * sizeof(float);
  auto memory = HostMemory::Map(bytes);
  if (!memory) return absl::ResourceExhaustedError(absl::StrCat("no memory for scratch rows of ", bytes, " bytes"));
  scratch.memory_ = std::move(*memory);
  return scratch;
}

void ScratchRows::Use(int64_t rows, int64_t cols) {
  CHECK_LE(cols, max_cols_) << "wider than ContextLimits says";
  cols_ = cols;
  if (cols == ld()) return;
  for (int64_t i = 0; i < rows; ++i) std::fill(row(i) + cols, row(i) + ld(), 0.0f);
}

absl::StatusOr<std::unique_ptr<CpuKvPool>> CpuKvPool::Create(const KvLayout& l, int num_blocks, KvDType stored,
                                                             std::byte* given) {
  if (l.dtype != stored) return absl::InvalidArgumentError("the layout's KV type is not the one of this mode");
  if (l.num_layers <= 0 || l.num_kv_heads <= 0 || l.head_dim <= 0 || l.block_size <= 0 || num_blocks <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("KV pool of ", l.num_layers, " layers, ", l.num_kv_heads,
                                                   " heads of ", l.head_dim, ", ", num_blocks, " blocks of ",
                                                   l.block_size, " tokens: all must be positive"));
  }
  if (given != nullptr) return std::unique_ptr<CpuKvPool>(new CpuKvPool(l, num_blocks, given, {}));
  // In floating point, as an absurd request may overflow 64 bits.
  const double asked = double(l.num_layers) * num_blocks * double(l.block_bytes());
  std::optional<HostMemory> memory;
  if (asked < 1e15) memory = HostMemory::Map(CpuKvPoolBytes(l, num_blocks));
  if (!memory) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot get ", uint64_t(asked < 1e19 ? asked : 1e19),
                                                     " bytes for a KV pool of ", num_blocks,
                                                     " blocks; ask for fewer blocks"));
  }
  std::byte* data = memory->data();
  return std::unique_ptr<CpuKvPool>(new CpuKvPool(l, num_blocks, data, std::move(*memory)));
}

CpuKvPool::CpuKvPool(const KvLayout& layout, int num_blocks, std::byte* data, HostMemory own)
    : KvPool(layout, num_blocks), layer_stride_(LayerStride(layout, num_blocks)), own_(std::move(own)), data_(data) {}

absl::Status CpuKvPool::CopyBlock(int from, int to) {
  const size_t bytes = layout().block_bytes();
  for (int layer = 0; layer < layout().num_layers; ++layer) {
    std::byte* base = static_cast<std::byte*>(layer_data(layer));
    std::memcpy(base + size_t(to) * bytes, base + size_t(from) * bytes, bytes);
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
