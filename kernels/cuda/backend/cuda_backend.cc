#include "kernels/cuda/backend/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cuda/backend/cuda_context.h"
#include "kernels/cuda/backend/device.h"
#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/backend/kv_pool.h"
#include "kernels/cuda/backend/storage.h"
#include "kernels/cuda/gemm/int8_layout.h"
#include "kernels/cuda/gemm/lt_library.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cuda {
namespace {

// Rows are converted and copied this many bytes at a time.
constexpr size_t kChunkBytes = size_t(8) << 20;

// Row i of a tensor as the device keeps it.
void Convert(const HostTensor& tensor, int64_t i, bool f32, float* scratch, void* to) {
  const auto* row = static_cast<const std::byte*>(tensor.data) + size_t(i) * RowBytes(tensor.type, tensor.cols);
  if (f32) {
    DequantizeRow(tensor.type, row, tensor.cols, static_cast<float*>(to));
    return;
  }
  if (tensor.type == DType::kBF16) {
    std::memcpy(to, row, size_t(tensor.cols) * sizeof(uint16_t));
    return;
  }
  DequantizeRow(tensor.type, row, tensor.cols, scratch);
  std::transform(scratch, scratch + tensor.cols, static_cast<uint16_t*>(to), F32ToBF16);
}

// 16 rows from row i on, fewer where the matrix ends; zeros behind it. scratch: [16][PaddedRow(cols)].
void ConvertToInt8(const HostTensor& tensor, int64_t i, float* scratch, unsigned char* to) {
  const int64_t stride = PaddedRow(tensor.cols);
  std::fill_n(scratch, kInt8TileRows * stride, 0.0f);
  for (int64_t r = 0; r < kInt8TileRows && i + r < tensor.rows; ++r) {
    Convert(tensor, i + r, /*f32=*/true, nullptr, scratch + r * stride);
  }
  PackInt8Rows(scratch, stride, to);
}

absl::StatusOr<std::unique_ptr<Weight>> Upload(const HostTensor& tensor, Kept kept) {
  if (absl::Status status = CheckTensor(tensor); !status.ok()) return status;
  const int64_t stride = PaddedRow(tensor.cols), unit = kept == Kept::kInt8 ? kInt8TileRows : 1;  // of rows
  const size_t unit_bytes = kept == Kept::kInt8
                                ? Int8Bytes(unit, stride)
                                : size_t(stride) * (kept == Kept::kF32 ? sizeof(float) : sizeof(uint16_t));
  const int64_t units = (tensor.rows + unit - 1) / unit;
  absl::StatusOr<DeviceMemory> memory = NewDeviceMemory(size_t(units) * unit_bytes, "weights");
  if (!memory.ok()) return memory.status();
  const int64_t at_once = std::clamp<int64_t>(int64_t(kChunkBytes / unit_bytes), 1, units);
  std::vector<std::byte> chunk(size_t(at_once) * unit_bytes);  // padding stays zero
  std::vector<float> scratch(size_t(unit * stride));
  for (int64_t first = 0; first < units; first += at_once) {
    const int64_t count = std::min(at_once, units - first);
    for (int64_t i = 0; i < count; ++i) {
      std::byte* to = chunk.data() + size_t(i) * unit_bytes;
      if (kept == Kept::kInt8) {
        ConvertToInt8(tensor, (first + i) * unit, scratch.data(), reinterpret_cast<unsigned char*>(to));
      } else {
        Convert(tensor, first + i, kept == Kept::kF32, scratch.data(), to);
      }
    }
    const cudaError_t error = cudaMemcpy(static_cast<std::byte*>(memory->get()) + size_t(first) * unit_bytes,
                                         chunk.data(), size_t(count) * unit_bytes, cudaMemcpyHostToDevice);
    if (absl::Status status = ToStatus(error, "weights to the GPU"); !status.ok()) return status;
  }
  // A copy from pageable memory may return before it has arrived, and steps run on a stream that does not wait for this
  // one.
  const cudaError_t error = cudaStreamSynchronize(nullptr);
  if (absl::Status status = ToStatus(error, "weights to the GPU"); !status.ok()) return status;
  return std::make_unique<CudaWeight>(tensor.rows, tensor.cols, kept, *std::move(memory));
}

std::string NumericsId(const CudaOptions& options, bool lt) {
  const char* products = lt ? "lt" : options.weights == CudaWeights::kInt8 ? "w8" : "";
  return absl::StrCat("cuda-bf16", products, ".1", options.kv == KvDType::kInt8 ? "+kv8.2" : "");
}

class CudaBackend final : public Backend {
 public:
  // lt: null for our own products alone.
  CudaBackend(std::unique_ptr<Device> device, const CudaOptions& options, const LtLibrary* lt)
      : device_(std::move(device)), options_(options), lt_(lt), numerics_id_(NumericsId(options, lt != nullptr)) {}

  std::string_view numerics_id() const override { return numerics_id_; }
  std::string_view packing_id() const override { return "cuda-bf16.1"; }
  KvDType kv_dtype() const override { return options_.kv; }
  size_t PackedBytes(const HostTensor&) const override { return 0; }
  bool has_own_memory() const override { return true; }
  std::optional<int64_t> FreeMemory() const override {
    size_t free = 0, total = 0;
    if (!device_->MakeCurrent().ok() || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
    return int64_t(free);
  }

  // Norms, biases and the RoPE table stay f32; what a file keeps in less does not need more.
  absl::StatusOr<std::unique_ptr<Weight>> PackTable(const HostTensor& tensor) const override {
    if (absl::Status status = device_->MakeCurrent(); !status.ok()) return status;
    return Upload(tensor, tensor.rows == 1 || tensor.type == DType::kF32 ? Kept::kF32 : Kept::kBf16);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackLinear(const HostTensor& tensor, PackedMemory) const override {
    if (absl::Status status = device_->MakeCurrent(); !status.ok()) return status;
    return Upload(tensor, options_.weights == CudaWeights::kInt8 ? Kept::kInt8 : Kept::kBf16);
  }
  std::unique_ptr<Weight> LinearOfTable(const Weight& table, int64_t first, int64_t rows) const override {
    const auto& from = static_cast<const CudaWeight&>(table);
    if (from.bf16() == nullptr || options_.weights != CudaWeights::kBf16) return nullptr;
    CHECK_LE(first + rows, from.rows());
    return std::make_unique<CudaWeight>(rows, from.cols(), Kept::kBf16, from.bf16() + first * from.stride());
  }
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks,
                                                    std::byte* memory) const override {
    if (memory != nullptr) return absl::InvalidArgumentError("a GPU's KV pool cannot lie in memory of the host");
    if (layout.dtype != kv_dtype()) {
      return absl::InvalidArgumentError(absl::StrCat("KV in ", std::string(Name(layout.dtype)), ": this backend has ",
                                                     std::string(Name(kv_dtype()))));
    }
    if (absl::Status status = device_->MakeCurrent(); !status.ok()) return status;
    return CudaKvPool::Create(layout, num_blocks, *device_, options_.nccl_library);
  }
  absl::StatusOr<std::unique_ptr<Context>> NewContext(const ContextLimits& limits) const override {
    return CudaContext::Create(limits, *device_, options_, lt_);
  }

 private:
  std::unique_ptr<Device> device_;
  const CudaOptions options_;
  const LtLibrary* const lt_;
  const std::string numerics_id_;
};

// Null: our own products.
absl::StatusOr<const LtLibrary*> LtOf(const CudaOptions& options) {
  if (options.weights == CudaWeights::kInt8 && options.gemm == CudaGemm::kCublasLt) {
    return absl::InvalidArgumentError("cuBLASLt does not multiply weights that are kept in int8");
  }
  if (options.gemm == CudaGemm::kOwn || options.weights == CudaWeights::kInt8) return nullptr;
  auto lt = LtLibrary::Load(options.cublaslt_library);
  if (lt.ok() || options.gemm == CudaGemm::kCublasLt) return lt;
  LOG(WARNING) << "products are our own: " << lt.status().message();
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewCudaBackend(const CudaOptions& options) {
  if (options.kv != KvDType::kBF16 && options.kv != KvDType::kInt8) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV in ", std::string(Name(options.kv)), ": a GPU keeps it in bf16 or int8"));
  }
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open(options.device);
  if (!device.ok()) return device.status();
  auto lt = LtOf(options);
  if (!lt.ok()) return lt.status();
  return std::make_unique<CudaBackend>(*std::move(device), options, *lt);
}

}  // namespace sluice::kernels::cuda
