// ld and st. The accesses happen here, in the translated file, so that ASan and TSan see them with the line of the .cu.
// Reported: misaligned addresses; shared ones outside the block's shared memory; global ones inside of it.
#pragma once

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

[[noreturn, gnu::cold]] void FailMisaligned(u64 address, u64 bytes, Loc where);
[[noreturn, gnu::cold]] void FailOutside(u64 address, SharedWindow window, bool wants_shared, Loc where);

template <Space kSpace>
inline void CheckAddress(SharedWindow window, u64 address, u64 bytes, Loc where) {
  if ((address & (bytes - 1)) != 0) [[unlikely]]
    FailMisaligned(address, bytes, where);
  if constexpr (kSpace == Space::kShared || kSpace == Space::kGlobal) {
    const bool inside = address - window.begin < window.end - window.begin;
    if (inside != (kSpace == Space::kShared)) [[unlikely]]
      FailOutside(address, window, kSpace == Space::kShared, where);
  }
}

template <class T, int kCount, Space kSpace>
HOST_CUDA_CALLED Items<T, kCount> Load(SharedWindow window, u64 address, Loc where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  Items<T, kCount> values;
  for (int i = 0; i < kCount; ++i) values.at[i] = reinterpret_cast<const T*>(address)[i];
  return values;
}

template <class T, int kCount, Space kSpace>
HOST_CUDA_CALLED void Store(SharedWindow window, u64 address, Items<T, kCount> values, Loc where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  for (int i = 0; i < kCount; ++i) reinterpret_cast<T*>(address)[i] = values.at[i];
}

// .volatile, .relaxed, .acquire, .release: each element is atomic.
template <class T, int kCount, Space kSpace>
HOST_CUDA_CALLED Items<T, kCount> LoadOrdered(SharedWindow window, u64 address, Ordering ordering,
                                              Loc where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  Items<T, kCount> values;
  for (int i = 0; i < kCount; ++i) {
    values.at[i] = As<T>(__atomic_load_n(reinterpret_cast<const Bits<T>*>(address) + i, __ATOMIC_RELAXED));
  }
  AfterLoad(reinterpret_cast<void*>(address), ordering, where);
  return values;
}

template <class T, int kCount, Space kSpace>
HOST_CUDA_CALLED void StoreOrdered(SharedWindow window, u64 address, Items<T, kCount> values, Ordering ordering,
                                   Loc where = Loc::current()) {
  CheckAddress<kSpace>(window, address, sizeof(T) * kCount, where);
  BeforeStore(reinterpret_cast<void*>(address), ordering);
  for (int i = 0; i < kCount; ++i) {
    __atomic_store_n(reinterpret_cast<Bits<T>*>(address) + i, As<Bits<T>>(values.at[i]), __ATOMIC_RELAXED);
  }
}

// discard: what a line held is gone, as far as anybody may know.
HOST_CUDA_CALLED void Discard(SharedWindow window, u64 address, u32 bytes, Loc where = Loc::current()) {
  if (bytes != 128) Fail(where, "discard of %u bytes", bytes);
  CheckAddress<Space::kGlobal>(window, address, bytes, where);
  for (u32 i = 0; i < bytes; ++i) reinterpret_cast<volatile u8*>(address)[i] = 0xff;
}

// Parameters of calls: plain memory of the caller.
template <class T, int kCount>
HOST_CUDA_CALLED Items<T, kCount> LoadParam(u64 address) {
  Items<T, kCount> values;
  std::memcpy(&values, reinterpret_cast<const void*>(address), sizeof values);
  return values;
}
template <class T, int kCount>
HOST_CUDA_CALLED void StoreParam(u64 address, Items<T, kCount> values) {
  std::memcpy(reinterpret_cast<void*>(address), &values, sizeof values);
}

}  // namespace host_cuda::ptx
