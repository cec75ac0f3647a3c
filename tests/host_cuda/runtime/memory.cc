#include "tests/host_cuda/runtime/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace host_cuda::rt {
namespace {

size_t Rounded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + 255) / 256 * 256;
}

}  // namespace

std::string Describe(const Block& block) {
  static constexpr const char* kKinds[] = {"device memory", "pinned memory", "registered memory", "imported memory"};
  std::string text = kKinds[static_cast<int>(block.kind)];
  text += " #" + std::to_string(block.number) + " (" + std::to_string(block.bytes) + " bytes";
  if (block.kind == MemoryKind::kDevice) text += " on device " + std::to_string(block.device);
  text += ")";
  if (block.state == Block::State::kFreed) text += ", freed by " + block.freed_by;
  if (block.state == Block::State::kNotYet) text += ", whose cudaMallocAsync its stream has not reached";
  return text;
}

Memory::Memory(int devices, size_t bytes_each, uint64_t seed)
    : total_(bytes_each), used_(static_cast<size_t>(devices)), random_(seed) {
  for (int i = 0; i < devices; ++i) arenas_.push_back(std::make_unique<Arena>());
}

Memory::~Memory() {
  for (auto& [base, block] : blocks_) {
    if (block.kind == MemoryKind::kPinned && block.state == Block::State::kLive) std::free(block.base);
  }
}

Block* Memory::Allocate(int device, size_t bytes, bool open) {
  size_t& used = used_[static_cast<size_t>(device)];
  if (used + Rounded(bytes) > total_ || bytes > total_) return nullptr;
  char* base = arena(device).Allocate(bytes);
  if (base == nullptr) {
    ReleasePool(device);
    base = arena(device).Allocate(bytes);
    if (base == nullptr) return nullptr;
  }
  ForgetFreedIn(base, base + Rounded(bytes));
  used += Rounded(bytes);
  Block& block = blocks_[base];
  block = {base, bytes, MemoryKind::kDevice, device, ++made_};
  block.state = Block::State::kNotYet;
  if (open) Open(&block);
  return &block;
}

Block* Memory::Reuse(int device, size_t bytes, uint64_t stream) {
  if (random_() % 2 == 0) return nullptr;
  for (auto& [base, block] : blocks_) {
    const bool same =
        block.kind == MemoryKind::kDevice && block.device == device && block.pooled && block.bytes == bytes;
    if (!same || block.stream != stream || !(block.freeing || block.state == Block::State::kFreed)) continue;
    size_t& used = used_[static_cast<size_t>(device)];
    if (block.freeing && *block.credit) {
      *block.credit = false;  // the bytes pass straight from the one to the other
    } else if (used + Rounded(bytes) <= total_) {
      used += Rounded(bytes);
    } else {
      continue;
    }
    block.freeing = false;
    if (block.state == Block::State::kFreed) block.state = Block::State::kNotYet;
    block.number = ++made_;
    return &block;
  }
  return nullptr;
}

Block* Memory::AllocatePinned(size_t bytes) {
  char* base = static_cast<char*>(std::aligned_alloc(4096, (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096));
  if (base == nullptr) return nullptr;
  std::memset(base, 0xff, bytes);
  return Add(base, bytes, MemoryKind::kPinned, 0);
}

Block* Memory::Add(void* base, size_t bytes, MemoryKind kind, int device) {
  char* start = static_cast<char*>(base);
  ForgetFreedIn(start, start + std::max<size_t>(bytes, 1));
  Block& block = blocks_[start];
  block = {start, bytes, kind, device, ++made_};
  return &block;
}

void Memory::Forget(Block* block) {
  blocks_.erase(block->base);
}

void Memory::Open(Block* block) {
  arena(block->device).Open(block->base);
  block->state = Block::State::kLive;
}

void Memory::BeginFree(Block* block, uint64_t stream) {
  block->freeing = true;
  block->stream = stream;
  block->credit = std::make_shared<bool>(true);
}

std::string Memory::ReachFreeAsync(Block* block, const bool& gives_back) {
  std::string wrong;
  if (!arena(block->device).TailIntact(block->base)) wrong = "something wrote past the end of " + Describe(*block);
  arena(block->device).Close(block->base);
  if (gives_back) used_[static_cast<size_t>(block->device)] -= Rounded(block->bytes);
  block->state = block->freeing ? Block::State::kFreed : Block::State::kNotYet;
  block->freed_by = "cudaFreeAsync";
  if (gives_back) block->freeing = false;
  return wrong;
}

std::string Memory::Free(Block* block, const std::string& by) {
  std::string wrong;
  if (block->kind == MemoryKind::kPinned) {
    std::free(block->base);
    blocks_.erase(block->base);  // the host may get these addresses again
    return {};
  }
  if (!arena(block->device).TailIntact(block->base)) wrong = "something wrote past the end of " + Describe(*block);
  if (block->pooled) {
    arena(block->device).Close(block->base);  // Reuse may open it again
  } else {
    arena(block->device).Release(block->base);
  }
  used_[static_cast<size_t>(block->device)] -= Rounded(block->bytes);
  block->state = Block::State::kFreed;
  block->freed_by = by;
  return wrong;
}

Block* Memory::Find(const void* p) {
  auto after = blocks_.upper_bound(static_cast<const char*>(p));
  if (after == blocks_.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  // Device memory reaches to its guard page: what points behind the last byte is an overrun of this block.
  const size_t reach = block.kind == MemoryKind::kDevice ? Rounded(block.bytes) : std::max<size_t>(block.bytes, 1);
  return static_cast<const char*>(p) < block.base + reach ? &block : nullptr;
}

const Block* Memory::FindBefore(const void* p) const {
  auto after = blocks_.upper_bound(static_cast<const char*>(p));
  return after == blocks_.begin() ? nullptr : &std::prev(after)->second;
}

Block* Memory::Live(const void* p) {
  Block* block = Find(p);
  return block != nullptr && block->state != Block::State::kFreed && !block->freeing ? block : nullptr;
}

size_t Memory::PoolBytes(int device) const {
  size_t sum = 0;
  for (const auto& [base, block] : blocks_) {
    const bool of_pool = block.kind == MemoryKind::kDevice && block.pooled && block.device == device;
    if (of_pool && block.state != Block::State::kFreed) sum += Rounded(block.bytes);
  }
  return sum;
}

bool Memory::Overlaps(const void* p, size_t bytes) const {
  const char* begin = static_cast<const char*>(p);
  const auto after = blocks_.lower_bound(begin + bytes);
  if (after == blocks_.begin()) return false;
  for (auto it = after; it-- != blocks_.begin();) {
    const Block& block = it->second;
    if (block.state == Block::State::kFreed) continue;
    return block.base + block.bytes > begin;
  }
  return false;
}

void Memory::ReleasePool(int device) {
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const Block& block = it->second;
    const bool idle = block.pooled && block.device == device && block.state == Block::State::kFreed;
    if (idle) arena(device).Release(block.base);
    it = idle ? blocks_.erase(it) : std::next(it);
  }
}

void Memory::ForgetFreedIn(const char* begin, const char* end) {
  for (auto it = blocks_.lower_bound(begin); it != blocks_.end() && it->first < end;) {
    it = it->second.state == Block::State::kFreed ? blocks_.erase(it) : std::next(it);
  }
}

}  // namespace host_cuda::rt
