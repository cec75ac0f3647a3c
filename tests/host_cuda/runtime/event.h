// Events: the place in a stream where each was recorded last; of events shared between processes, counters in shared
// memory.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/host_cuda/runtime/runtime.h"

namespace host_cuda::rt {

// In memory that processes share (cudaIpcGetEventHandle).
struct SharedEvent {
  std::atomic<uint64_t> recorded, reached;
};

struct EventState {
  bool timed = true, shared_on_request = false;
  bool recorded = false;
  Place place;
  std::shared_ptr<std::atomic<double>> seconds;  // when the place was reached
  std::shared_ptr<Capture> capture;              // recorded while its stream captured
  std::vector<int> nodes;
  std::shared_ptr<SharedEvent> shared;
  int file = -1;  // of `shared`, in the process that made it
};

// nullptr: no such event.
std::shared_ptr<EventState> FindEvent(cudaEvent_t event);
cudaEvent_t AddEvent(std::shared_ptr<EventState> state);

}  // namespace host_cuda::rt
