#include "kernels/cuda/transfer/shared_memory.h"

#include <cuda_runtime_api.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/backend/memory.h"

namespace sluice::kernels::cuda {
namespace {

constexpr uint64_t kMagic = 0x31636d656d756373;  // "scumemc1"
constexpr size_t kNameBytes = 16;

struct Handle {
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  char name[kNameBytes] = {};  // random
  cudaIpcMemHandle_t memory = {};
};
static_assert(std::is_trivially_copyable_v<Handle>);

using Memory = std::shared_ptr<void>;

// What this process has made, by name: a fact of the process, as CUDA's refusal is.
struct Made {
  std::mutex mutex;
  std::map<std::string, std::pair<std::weak_ptr<void>, size_t>> by_name;
};
Made& TheMade() {
  static auto& made = *new Made;
  return made;
}

class SharedMemory final : public DeviceBuffer {
 public:
  SharedMemory(Memory memory, size_t bytes, std::string name, std::string handle)
      : DeviceBuffer({static_cast<std::byte*>(memory.get()), bytes}, std::move(handle)),
        memory_(std::move(memory)),
        name_(std::move(name)) {}
  ~SharedMemory() override {
    if (name_.empty()) return;  // opened
    const std::lock_guard lock(TheMade().mutex);
    TheMade().by_name.erase(name_);
  }

 private:
  Memory memory_;
  std::string name_;
};

Memory FindMade(const std::string& name, size_t bytes) {
  const std::lock_guard lock(TheMade().mutex);
  const auto it = TheMade().by_name.find(name);
  return it == TheMade().by_name.end() || it->second.second != bytes ? nullptr : it->second.first.lock();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBuffer>> NewSharedMemory(const Device& gpu, size_t bytes) {
  if (absl::Status status = gpu.MakeCurrent(); !status.ok()) return status;
  auto owned = NewDeviceMemory(bytes, "memory for KV from other GPUs");
  if (!owned.ok()) return owned.status();
  Handle handle;
  handle.bytes = bytes;
  if (getrandom(handle.name, kNameBytes, 0) != ssize_t(kNameBytes)) return absl::ErrnoToStatus(errno, "getrandom");
  const cudaError_t error = cudaIpcGetMemHandle(&handle.memory, owned->get());
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return ToStatus(error, "sharing GPU memory with other processes");
  }
  const Memory memory(owned->release(), [&gpu](void* p) {
    if (gpu.MakeCurrent().ok()) FreeDevice()(p);
  });
  std::string name(handle.name, kNameBytes);
  {
    const std::lock_guard lock(TheMade().mutex);
    TheMade().by_name[name] = {memory, bytes};
  }
  return std::make_unique<SharedMemory>(memory, bytes, std::move(name),
                                        std::string(reinterpret_cast<const char*>(&handle), sizeof(handle)));
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> OpenSharedMemory(const Device& gpu, std::string_view bytes) {
  Handle handle;
  if (bytes.size() == sizeof(handle)) std::memcpy(&handle, bytes.data(), sizeof(handle));
  if (bytes.size() != sizeof(handle) || handle.magic != kMagic || handle.bytes == 0) {
    return absl::InvalidArgumentError("this is no handle of shared GPU memory");
  }
  if (Memory own = FindMade(std::string(handle.name, kNameBytes), handle.bytes); own != nullptr) {
    return std::make_unique<SharedMemory>(std::move(own), handle.bytes, "", "");
  }
  if (absl::Status status = gpu.MakeCurrent(); !status.ok()) return status;
  void* opened = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&opened, handle.memory, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return absl::FailedPreconditionError(
        std::string(ToStatus(error, "this GPU does not reach the memory of the other worker's").message()));
  }
  const Memory memory(opened, [&gpu](void* p) {
    if (gpu.MakeCurrent().ok()) (void)cudaIpcCloseMemHandle(p);
  });
  return std::make_unique<SharedMemory>(memory, handle.bytes, "", "");
}

}  // namespace sluice::kernels::cuda
