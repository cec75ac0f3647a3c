// ld and st. The accesses happen here, in the translated file, so that ASan and TSan see them with the line of the .cu.
// Reported: misaligned addresses; shared ones outside the block's shared memory; global ones inside of it.
#pragma once

#include <array>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/memory_order.h"
#include "tests/host_cuda/ptx/types.h"

namespace host_cuda::ptx {

enum class Space { kGeneric, kShared, kGlobal, kLocal };

// Where the shared memory of the running block is.
struct SharedWindow {
  u64 begin, end;
};
inline SharedWindow CurrentWindow() {
  const SharedMemory& shared = this_machine->shared;
  return {shared.base(), shared.end()};
}

[[noreturn, gnu::cold]] void FailMisaligned(u64 address, u64 bytes, const Loc& where);
[[noreturn, gnu::cold]] void FailOutside(u64 address, const SharedWindow& window, bool wants_shared, const Loc& where);

template <Space kSpace>
inline void CheckAddress(const SharedWindow& window, u64 address, u64 bytes, const Loc& where) {
  if ((address & (bytes - 1)) != 0) [[unlikely]]
    FailMisaligned(address, bytes, where);
  if constexpr (kSpace == Space::kShared || kSpace == Space::kGlobal) {
    const bool inside = address - window.begin < window.end - window.begin;
    if (inside != (kSpace == Space::kShared)) [[unlikely]]
      FailOutside(address, window, kSpace == Space::kShared, where);
  }
}

template <class T, int kCount, Space kSpace>
inline std::array<T, kCount> Load(const SharedWindow& window, u64 address, const Loc& where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  std::array<T, kCount> values;
  for (int i = 0; i < kCount; ++i) values[i] = reinterpret_cast<const T*>(address)[i];
  return values;
}

template <class T, int kCount, Space kSpace>
inline void Store(const SharedWindow& window, u64 address, const std::array<T, kCount>& values,
                  const Loc& where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  for (int i = 0; i < kCount; ++i) reinterpret_cast<T*>(address)[i] = values[i];
}

// .volatile, .relaxed, .acquire, .release: each element is atomic.
template <class T, int kCount, Space kSpace>
inline std::array<T, kCount> LoadOrdered(const SharedWindow& window, u64 address, Ordering ordering,
                                         const Loc& where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  std::array<T, kCount> values;
  for (int i = 0; i < kCount; ++i) {
    values[i] = As<T>(__atomic_load_n(reinterpret_cast<const Bits<T>*>(address) + i, __ATOMIC_RELAXED));
  }
  AfterLoad(reinterpret_cast<void*>(address), ordering, where);
  return values;
}

template <class T, int kCount, Space kSpace>
inline void StoreOrdered(const SharedWindow& window, u64 address, const std::array<T, kCount>& values,
                         Ordering ordering, const Loc& where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  BeforeStore(reinterpret_cast<void*>(address), ordering);
  for (int i = 0; i < kCount; ++i) {
    __atomic_store_n(reinterpret_cast<Bits<T>*>(address) + i, As<Bits<T>>(values[i]), __ATOMIC_RELAXED);
  }
}

// discard: what a line held is gone, as far as anybody may know.
inline void Discard(const SharedWindow& window, u64 address, u32 bytes, const Loc& where = Loc::current()) {
  if (bytes != 128) Fail(where, "discard of %u bytes", bytes);
  CheckAddress<Space::kGlobal>(window, address, bytes, where);
  for (u32 i = 0; i < bytes; ++i) reinterpret_cast<volatile u8*>(address)[i] = 0xff;
}

// Parameters of calls: plain memory of the caller.
template <class T, int kCount>
inline std::array<T, kCount> LoadParam(u64 address) {
  std::array<T, kCount> values;
  std::memcpy(values.data(), reinterpret_cast<const void*>(address), sizeof values);
  return values;
}
template <class T, int kCount>
inline void StoreParam(u64 address, const std::array<T, kCount>& values) {
  std::memcpy(reinterpret_cast<void*>(address), values.data(), sizeof values);
}

}  // namespace host_cuda::ptx
