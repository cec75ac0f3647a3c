// Finds memory of the host that is changed between an asynchronous copy from it, or the launch of a graph with such a
// copy, and the turn of that copy. What the device itself writes there meanwhile (an earlier copy or fill in the
// stream) and what callbacks in streams do is no finding. Kernels that write pinned memory are not seen: where they and
// the host take turns, HOST_CUDA_PINNED=ignore ends the search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace host_cuda::rt {

class PinnedWatch {
 public:
  // At the call. With the runtime's mutex held; nullptr: nothing to watch.
  static std::shared_ptr<const PinnedWatch> Begin(const void* from, size_t bytes);

  // At the turn of the copy, without the mutex. Empty: as it was; else what was changed.
  std::string Changed() const;

 private:
  const void* from_ = nullptr;
  size_t bytes_ = 0;
  uint64_t fingerprint_ = 0, device_writes_ = 0, callbacks_ = 0;
};

// The device has written there. Without the mutex.
void NoteDeviceWrite(const void* to);

// A callback in a stream has run.
void NoteHostCallback();

}  // namespace host_cuda::rt
