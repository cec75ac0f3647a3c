#include "tests/host_cuda/runtime/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace host_cuda::rt {
namespace {

constexpr size_t kPage = 4096, kAlign = 256, kSpace = size_t{64} << 30, kPages = kSpace / kPage;
constexpr int kTail = 0x5a;

size_t RoundUp(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

Arena::Arena() {
  file_ = memfd_create("host_cuda_device", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kSpace)) != 0) Die("host_cuda: device memory");
  void* space = mmap(nullptr, kSpace, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (space == MAP_FAILED) Die("host_cuda: address space of a device");
  start_ = static_cast<char*>(space);
}

Arena::~Arena() {
#if defined(__SANITIZE_ADDRESS__)
  for (const auto& [base, block] : blocks_)
    __asan_unpoison_memory_region(start_ + block.first_page * kPage, block.pages * kPage);
#endif
  munmap(start_, kSpace);
  close(file_);
}

bool Arena::Contains(const void* p) const {
  const char* c = static_cast<const char*>(p);
  return c >= start_ && c < start_ + kSpace;
}

char* Arena::Allocate(size_t bytes) {
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), kAlign), pages = RoundUp(rounded, kPage) / kPage;
  for (int wraps = 0; wraps < 2; ++wraps) {
    // The first gap at or after next_page_ that holds the block and its guard page.
    size_t page = next_page_;
    auto later = taken_.lower_bound(page);
    if (later != taken_.begin()) page = std::max(page, std::prev(later)->first + std::prev(later)->second);
    while (later != taken_.end() && later->first < page + pages + 1) {
      page = later->first + later->second;
      ++later;
    }
    if (page + pages + 1 <= kPages) {
      next_page_ = page + pages + 1;
      taken_[page] = pages + 1;
      char* base = start_ + page * kPage + (pages * kPage - rounded);
      blocks_[base] = {page, pages, bytes};
      return base;
    }
    next_page_ = 1;
  }
  return nullptr;
}

void Arena::Open(char* base) {
  const Block& block = Of(base);
  char* first = start_ + block.first_page * kPage;
  char* end = first + block.pages * kPage;
  if (mprotect(first, block.pages * kPage, PROT_READ | PROT_WRITE) != 0) Die("host_cuda: mprotect");
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(first, block.pages * kPage);
#endif
  std::memset(base, 0xff, block.bytes);
  std::memset(base + block.bytes, kTail, static_cast<size_t>(end - base) - block.bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(first, static_cast<size_t>(base - first));
  __asan_poison_memory_region(base + block.bytes, static_cast<size_t>(end - base) - block.bytes);
#endif
}

void Arena::Close(char* base) {
  const Block& block = Of(base);
  char* first = start_ + block.first_page * kPage;
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(first, block.pages * kPage);
#endif
  mprotect(first, block.pages * kPage, PROT_NONE);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(block.first_page * kPage),
            static_cast<off_t>(block.pages * kPage));
}

#if defined(__SANITIZE_ADDRESS__)
__attribute__((no_sanitize("address")))
#endif
bool Arena::TailIntact(char* base) const {
  const Block& block = Of(base);
  const char* end = start_ + (block.first_page + block.pages) * kPage;
  for (const volatile char* p = base + block.bytes; p < end; p = p + 1) {
    if (*p != kTail) return false;
  }
  return true;
}

void Arena::Release(char* base) {
  Close(base);
  taken_.erase(Of(base).first_page);
  blocks_.erase(base);
}

}  // namespace host_cuda::rt
