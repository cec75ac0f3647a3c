#include "tests/host_cuda/runtime/pinned_watch.h"

#include <atomic>
#include <cstring>

#include "tests/host_cuda/runtime/runtime.h"

namespace host_cuda::rt {
namespace {

std::atomic<uint64_t> callbacks{0};

// Any change of one word changes it.
uint64_t Fingerprint(const void* from, size_t bytes) {
  const char* p = static_cast<const char*>(from);
  uint64_t sum = bytes;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15;
    sum ^= sum >> 32;
  }
  uint64_t word = 0;
  std::memcpy(&word, p, bytes);
  return (sum ^ word) * 0x9e3779b97f4a7c15;
}

}  // namespace

std::shared_ptr<const PinnedWatch> PinnedWatch::Begin(const void* from, size_t bytes) {
  Runtime& runtime = TheRuntime();
  if (!runtime.settings.watch_pinned) return nullptr;
  const Block* block = runtime.memory->Find(from);
  if (block != nullptr && block->kind != MemoryKind::kPinned && block->kind != MemoryKind::kRegistered) return nullptr;
  auto watch = std::make_shared<PinnedWatch>();
  watch->from_ = from;
  watch->bytes_ = bytes;
  watch->fingerprint_ = Fingerprint(from, bytes);
  watch->device_writes_ = block != nullptr ? block->device_writes : 0;
  watch->callbacks_ = callbacks;
  return watch;
}

std::string PinnedWatch::Changed() const {
  if (Fingerprint(from_, bytes_) == fingerprint_ || callbacks != callbacks_) return {};
  Runtime& runtime = TheRuntime();
  std::lock_guard<std::mutex> lock(runtime.mutex);
  const Block* block = runtime.memory->Find(from_);
  if (block == nullptr) return "pageable memory";
  return block->device_writes == device_writes_ ? Describe(*block) : "";
}

void NoteDeviceWrite(const void* to) {
  Runtime& runtime = TheRuntime();
  std::lock_guard<std::mutex> lock(runtime.mutex);
  if (Block* block = runtime.memory->Find(to)) ++block->device_writes;
}

void NoteHostCallback() {
  ++callbacks;
}

}  // namespace host_cuda::rt
