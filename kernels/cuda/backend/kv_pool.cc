#include "kernels/cuda/backend/kv_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/transfer/kv_copy.h"
#include "kernels/kv_checksum.h"

namespace sluice::kernels::cuda {
namespace {

constexpr size_t kFirstStaging = size_t(8) << 20;  // bytes: as many as a piece of a transfer may have
constexpr size_t kFirstBlocks = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKvPool>> CudaKvPool::Create(const KvLayout& layout, int num_blocks,
                                                               const Device& device, const std::string& nccl) {
  if (absl::Status status = device.MakeCurrent(); !status.ok()) return status;
  auto memory = NewDeviceMemory(layout.block_bytes_all_layers() * size_t(num_blocks), "KV blocks");
  if (!memory.ok()) return memory.status();
  std::unique_ptr<CudaKvPool> pool(new CudaKvPool(layout, num_blocks, *std::move(memory), device, nccl));
  const cudaError_t error = cudaStreamCreateWithFlags(&pool->stream_, cudaStreamNonBlocking);
  if (absl::Status status = ToStatus(error, "a stream for KV"); !status.ok()) return status;
  if (absl::Status status = pool->Reserve(kFirstStaging, kFirstBlocks); !status.ok()) return status;
  return pool;
}

CudaKvPool::~CudaKvPool() {
  if (stream_ == nullptr) return;
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamDestroy(stream_);
}

absl::Status CudaKvPool::CopyBlock(int from, int to) {
  if (absl::Status status = gpu_.MakeCurrent(); !status.ok()) return status;
  const size_t block = layout().block_bytes();
  return ToStatus(
      cudaMemcpy2DAsync(At(0) + size_t(to) * block, layer_bytes(), At(0) + size_t(from) * block, layer_bytes(), block,
                        size_t(layout().num_layers), cudaMemcpyDeviceToDevice, gpu_.stream()),
      "copying KV blocks");
}

absl::Status CudaKvPool::Reserve(size_t bytes, size_t blocks) {
  if (bytes <= staging_.bytes && blocks <= staging_.blocks) return absl::OkStatus();
  Staging s{.bytes = std::max(bytes, staging_.bytes), .blocks = std::max(blocks, staging_.blocks)};
  for (const auto& [memory, size] :
       {std::pair(&s.run, s.bytes), {&s.ids, s.blocks * sizeof(int32_t)}, {&s.sum, sizeof(uint64_t)}}) {
    auto made = NewDeviceMemory(size, "scratch of KV transfers");
    if (!made.ok()) return made.status();
    *memory = *std::move(made);
  }
  for (const auto& [memory, size] :
       {std::pair(&s.host_run, s.bytes), {&s.host_ids, s.blocks * sizeof(int32_t)}, {&s.host_sum, sizeof(uint64_t)}}) {
    auto made = NewPinnedMemory(size, "scratch of KV transfers");
    if (!made.ok()) return made.status();
    *memory = *std::move(made);
  }
  staging_ = std::move(s);
  return absl::OkStatus();
}

cudaError_t CudaKvPool::Move(const KvSlice& slice, void* run, bool gather) {
  const KvLayout& l = layout();
  auto* const ids = static_cast<int32_t*>(staging_.host_ids.get());
  std::copy(slice.blocks.begin(), slice.blocks.end(), ids);
  cudaError_t error =
      cudaMemcpyAsync(staging_.ids.get(), ids, slice.blocks.size_bytes(), cudaMemcpyHostToDevice, stream_);
  if (error == cudaSuccess) error = cudaMemsetAsync(staging_.sum.get(), 0, sizeof(uint64_t), stream_);
  if (error != cudaSuccess) return error;
  const KvCopyArgs args{.pool = reinterpret_cast<unsigned char*>(At(slice.layer_begin)),
                        .layer_bytes = layer_bytes(),
                        .block_bytes = l.block_bytes(),
                        .plane_bytes = l.plane_bytes(),
                        .first_byte = size_t(slice.head_begin) * l.head_bytes(),
                        .run_bytes = size_t(slice.head_end - slice.head_begin) * l.head_bytes(),
                        .blocks = static_cast<const int32_t*>(staging_.ids.get()),
                        .num_blocks = int(slice.blocks.size()),
                        .layers = slice.layer_end - slice.layer_begin,
                        .run = static_cast<unsigned char*>(run),
                        .checksum = static_cast<uint64_t*>(staging_.sum.get())};
  error = gather ? GatherKv(args, stream_) : ScatterKv(args, stream_);
  if (error != cudaSuccess) return error;
  return cudaMemcpyAsync(staging_.host_sum.get(), staging_.sum.get(), sizeof(uint64_t), cudaMemcpyDeviceToHost,
                         stream_);
}

absl::StatusOr<uint64_t> CudaKvPool::Await(cudaError_t error, size_t bytes, const char* doing) {
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  if (absl::Status status = ToStatus(error, doing); !status.ok()) return status;
  return *static_cast<const uint64_t*>(staging_.host_sum.get()) + Mix(bytes, uint64_t{1} << 63);
}

absl::StatusOr<uint64_t> CudaKvPool::Gather(const KvSlice& slice, std::span<std::byte> out) {
  CHECK_EQ(out.size(), SliceBytes(slice, layout()));
  const std::lock_guard lock(moving_);
  if (absl::Status status = gpu_.MakeCurrent(); !status.ok()) return status;
  if (absl::Status status = Reserve(out.size(), slice.blocks.size()); !status.ok()) return status;
  cudaError_t error = Move(slice, staging_.run.get(), /*gather=*/true);
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(staging_.host_run.get(), staging_.run.get(), out.size(), cudaMemcpyDeviceToHost, stream_);
  }
  auto sum = Await(error, out.size(), "KV from the GPU");
  if (sum.ok()) std::memcpy(out.data(), staging_.host_run.get(), out.size());
  return sum;
}

absl::StatusOr<uint64_t> CudaKvPool::Scatter(const KvSlice& slice, std::span<const std::byte> in) {
  CHECK_EQ(in.size(), SliceBytes(slice, layout()));
  const std::lock_guard lock(moving_);
  if (absl::Status status = gpu_.MakeCurrent(); !status.ok()) return status;
  if (absl::Status status = Reserve(in.size(), slice.blocks.size()); !status.ok()) return status;
  std::memcpy(staging_.host_run.get(), in.data(), in.size());
  cudaError_t error =
      cudaMemcpyAsync(staging_.run.get(), staging_.host_run.get(), in.size(), cudaMemcpyHostToDevice, stream_);
  if (error == cudaSuccess) error = Move(slice, staging_.run.get(), /*gather=*/false);
  return Await(error, in.size(), "KV to the GPU");
}

absl::StatusOr<uint64_t> CudaKvPool::MoveOnDevice(const KvSlice& slice, void* run, size_t bytes, bool gather) {
  CHECK_EQ(bytes, SliceBytes(slice, layout()));
  const std::lock_guard lock(moving_);
  if (absl::Status status = gpu_.MakeCurrent(); !status.ok()) return status;
  if (absl::Status status = Reserve(0, slice.blocks.size()); !status.ok()) return status;
  return Await(Move(slice, run, gather), bytes, gather ? "KV to another GPU" : "KV from another GPU");
}

absl::StatusOr<uint64_t> CudaKvPool::GatherOnDevice(const KvSlice& slice, std::span<std::byte> out) {
  return MoveOnDevice(slice, out.data(), out.size(), /*gather=*/true);
}

// The kernel only reads the run.
absl::StatusOr<uint64_t> CudaKvPool::ScatterOnDevice(const KvSlice& slice, std::span<const std::byte> in) {
  return MoveOnDevice(slice, const_cast<std::byte*>(in.data()), in.size(), /*gather=*/false);
}

}  // namespace sluice::kernels::cuda
