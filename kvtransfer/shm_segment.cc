#include "kvtransfer/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

namespace sluice::kvtransfer {
namespace {

constexpr uint64_t kMagic = 0x32766d6853636c53u;
constexpr size_t kHeaderBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static_assert(sizeof(ShmHeader) <= kHeaderBytes);

absl::Status Errno(const char* what) {
  return absl::ErrnoToStatus(errno, what);
}

}  // namespace

int Fd::release() {
  return std::exchange(fd_, -1);
}

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

absl::Status ShmSegment::Check(const ChannelLimits& limits) {
  if (limits.window >= 1 && limits.window <= kMaxShmWindow && limits.max_piece_bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("shared memory channel: window %d must be in [1, %d]", limits.window, kMaxShmWindow));
}

absl::StatusOr<ShmSegment> ShmSegment::Create(const ChannelLimits& limits, const std::string& device_handle) {
  if (absl::Status bad = Check(limits); !bad.ok()) return bad;
  if (device_handle.size() > kMaxDeviceHandle) return absl::InvalidArgumentError("a handle of device memory too long");
  Fd fd(memfd_create("sluice-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.ok()) return Errno("memfd_create");
  const size_t size =
      kHeaderBytes + (device_handle.empty() ? size_t(limits.window) * SlotStride(limits.max_piece_bytes) : 0);
  if (ftruncate(fd.get(), off_t(size)) != 0) return Errno("sizing the shared memory of a KV channel");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Errno("sealing the shared memory of a KV channel");
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return Errno("mapping the shared memory of a KV channel");
  ShmHeader* header = new (base) ShmHeader();
  header->magic = kMagic;
  header->window = uint64_t(limits.window);
  header->slot_bytes = limits.max_piece_bytes;
  header->device_handle_bytes = device_handle.size();
  std::memcpy(header->device_handle, device_handle.data(), device_handle.size());
  for (auto& slot : header->slot_of) slot.store(~uint64_t{0}, std::memory_order_relaxed);
  header->sent.store(0, std::memory_order_release);
  return ShmSegment(std::move(fd), base, size, limits, device_handle);
}

absl::StatusOr<ShmSegment> ShmSegment::Map(Fd fd) {
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return Errno("fstat of a KV channel's memory");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || size_t(st.st_size) < kHeaderBytes) {
    return absl::InvalidArgumentError("the peer handed over something that is not a sealed KV channel");
  }
  const size_t size = size_t(st.st_size);
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return Errno("mapping the shared memory of a KV channel");
  const ShmHeader& header = *static_cast<const ShmHeader*>(base);
  ChannelLimits limits;
  const uint64_t window = header.window, slot_bytes = header.slot_bytes, handle_bytes = header.device_handle_bytes;
  constexpr uint64_t kMostSlot = uint64_t{1} << 40;  // so that nothing below wraps
  const bool good = header.magic == kMagic && window >= 1 && window <= uint64_t(kMaxShmWindow) && slot_bytes > 0 &&
                    slot_bytes <= kMostSlot && handle_bytes <= kMaxDeviceHandle &&
                    kHeaderBytes + (handle_bytes == 0 ? window * SlotStride(slot_bytes) : 0) == size;
  limits.window = int(window);
  limits.max_piece_bytes = slot_bytes;
  ShmSegment segment(std::move(fd), base, size, limits,
                     good ? std::string(header.device_handle, handle_bytes) : std::string());
  if (!good) return absl::InvalidArgumentError("the peer's KV channel has another layout: versions differ?");
  return segment;
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      size_(other.size_),
      limits_(other.limits_),
      device_handle_(std::move(other.device_handle_)) {}

ShmSegment::~ShmSegment() {
  if (base_ != nullptr) munmap(base_, size_);
}

std::byte* ShmSegment::slots() {
  return static_cast<std::byte*>(base_) + kHeaderBytes;
}

}  // namespace sluice::kvtransfer
