#include "tests/host_cuda/engine/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/host_cuda/engine/diagnose.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

constexpr size_t kArena = 1 << 20;
// What is fresh is NaN; what lies between variables is a number so large that whoever reads it is wrong.
constexpr int kFresh = 0xff, kMark = 0x7f;
constexpr size_t kDynamicAlignment = 1024;

}  // namespace

SharedMemory::~SharedMemory() {
  if (arena_ == nullptr) return;
  Unpoison(arena_, kArena);
  munmap(arena_, kArena);
}

void SharedMemory::Arrange(const std::vector<SharedVariable>& variables, size_t dynamic_bytes) {
  if (arena_ == nullptr) {
    void* memory = mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("host_cuda: shared memory below 4 GiB");
      std::abort();
    }
    arena_ = static_cast<char*>(memory);
  }
  variables_ = variables;
  size_t end = kRedzone;
  for (const SharedVariable& variable : variables) end = std::max(end, variable.offset + variable.bytes + kRedzone);
  dynamic_ = (end + kDynamicAlignment - 1) / kDynamicAlignment * kDynamicAlignment;
  variables_.push_back({dynamic_, dynamic_bytes, "dynamic shared memory"});
  used_ = dynamic_ + dynamic_bytes + kRedzone;
  if (used_ > kArena) std::abort();  // the launch limits and the translator's layout keep it far below
  Unpoison(arena_, kArena);
  std::memset(arena_, kMark, used_);
  Poison(arena_, kArena);
  for (const SharedVariable& variable : variables_) Unpoison(arena_ + variable.offset, variable.bytes);
}

void SharedMemory::Fresh() {
  for (const SharedVariable& variable : variables_) std::memset(arena_ + variable.offset, kFresh, variable.bytes);
}

#if defined(HOST_CUDA_ASAN)
std::string SharedMemory::Trespass() const {
  return "";
}  // found at the access
#else
std::string SharedMemory::Trespass() const {
  size_t from = 0;
  const char* behind = "the beginning";
  auto untouched = [&](size_t to) {
    const auto mark = static_cast<char>(kMark);
    if (to - from < 2 || (arena_[from] == mark && std::memcmp(arena_ + from, arena_ + from + 1, to - from - 1) == 0)) {
      return to - from == 1 && arena_[from] != mark ? from : to;
    }
    for (size_t i = from; i < to; ++i) {
      if (static_cast<unsigned char>(arena_[i]) != kMark) return i;
    }
    return to;
  };
  for (size_t v = 0; v <= variables_.size(); ++v) {
    const size_t to = v < variables_.size() ? variables_[v].offset : used_;
    if (const size_t at = untouched(to); at != to) {
      return Format("shared memory overrun: byte %zu behind %s was written, where no variable is", at - from, behind);
    }
    if (v == variables_.size()) break;
    from = variables_[v].offset + variables_[v].bytes;
    behind = variables_[v].name.c_str();
  }
  return "";
}
#endif

void SharedMemory::Close() {
  Poison(arena_, kArena);
}

}  // namespace host_cuda
