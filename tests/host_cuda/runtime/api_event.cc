// Events of one process; those of several are in api_ipc.cc.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <new>

#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/event.h"
#include "tests/host_cuda/runtime/handles.h"
#include "tests/host_cuda/runtime/report.h"

struct CUevent_st {};

namespace host_cuda::rt {
namespace {

// Guarded by the runtime's mutex.
std::map<cudaEvent_t, std::shared_ptr<EventState>>& Events() {
  static auto& events = *new std::map<cudaEvent_t, std::shared_ptr<EventState>>;
  return events;
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool Reached(const EventState& event) {
  if (event.shared) return event.shared->reached >= event.shared->recorded;
  return !event.recorded || event.place.Reached();
}

// A page that other processes can map. false: the system has none.
bool MakeShared(EventState* event) {
  const int file = memfd_create("host_cuda_event", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, 4096) != 0) return false;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return false;
  event->file = file;
  event->shared = std::shared_ptr<SharedEvent>(new (page) SharedEvent{}, [file](SharedEvent* p) {
    munmap(p, 4096);
    close(file);
  });
  return true;
}

cudaError_t RecordInCapture(const std::shared_ptr<Queue>& queue, EventState* event) {
  if (queue->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  event->capture = queue->capture;
  event->nodes = queue->tips;
  return cudaSuccess;
}

cudaError_t Record(Runtime& runtime, const std::shared_ptr<Queue>& queue, EventState* event) {
  if (queue->capture) return RecordInCapture(queue, event);
  DeviceWork work;
  work.name = "cudaEventRecord";
  auto seconds = std::make_shared<std::atomic<double>>(0.0);
  uint64_t count = 0;
  auto shared = event->shared;
  if (shared) count = ++shared->recorded;
  work.step = [seconds, shared, count] {
    *seconds = Seconds();
    if (shared && shared->reached < count) shared->reached = count;
    return true;
  };
  const cudaError_t error = AppendOrCapture(runtime, queue, std::move(work));
  if (error != cudaSuccess) return error;
  event->capture = nullptr;
  event->recorded = true;
  event->place = {queue, queue->issued};
  event->seconds = seconds;
  return cudaSuccess;
}

// An event as a node of its own in a graph.
cudaError_t RefuseExternal(const Queue& queue, const char* call) {
  queue.capture->invalid = true;
  return Refuse(call, "external events in graphs");
}

// A stream that waits for an event of a capture joins it.
cudaError_t JoinCapture(Runtime& runtime, const std::shared_ptr<Queue>& queue, const EventState& event) {
  const bool over =
      std::find(runtime.captures.begin(), runtime.captures.end(), event.capture) == runtime.captures.end();
  if (over) return cudaErrorCapturedEvent;
  if (event.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (queue->capture && queue->capture != event.capture) {
    Report("cudaStreamWaitEvent would merge two stream captures");
    queue->capture->invalid = event.capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (queue->default_stream) {
    event.capture->invalid = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (!queue->capture) {
    queue->capture = event.capture;
    queue->tips.clear();
    event.capture->members.insert(queue);
  }
  for (int node : event.nodes) {
    if (std::find(queue->tips.begin(), queue->tips.end(), node) == queue->tips.end()) queue->tips.push_back(node);
  }
  return cudaSuccess;
}

cudaError_t WaitInStream(Runtime& runtime, const std::shared_ptr<Queue>& queue, const EventState& event) {
  if (event.capture) return JoinCapture(runtime, queue, event);
  if (queue->capture) {
    Report("cudaStreamWaitEvent in a stream capture on an event that was recorded outside of it");
    queue->capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  DeviceWork work;
  work.name = "cudaStreamWaitEvent";
  work.step = [] { return true; };
  if (event.shared) {
    work.step = [shared = event.shared, count = event.shared->recorded.load()] { return shared->reached >= count; };
    return AppendOrCapture(runtime, queue, std::move(work));
  }
  if (!event.recorded) return cudaSuccess;
  return AppendOrCapture(runtime, queue, std::move(work), {event.place});
}

}  // namespace

void ForgetEvents() {
  for (const auto& [event, state] : Events()) delete event;
  Events().clear();
}

std::shared_ptr<EventState> FindEvent(cudaEvent_t event) {
  auto found = Events().find(event);
  return found == Events().end() ? nullptr : found->second;
}

cudaEvent_t AddEvent(std::shared_ptr<EventState> state) {
  cudaEvent_t event = new CUevent_st;
  Events()[event] = std::move(state);
  return event;
}

}  // namespace host_cuda::rt

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const bool shared = (flags & cudaEventInterprocess) != 0, untimed = (flags & cudaEventDisableTiming) != 0;
    if (shared && !untimed) return cudaErrorInvalidValue;
    auto state = std::make_shared<EventState>();
    state->timed = !untimed;
    state->shared_on_request = shared;
    if (shared && !MakeShared(state.get())) return cudaErrorMemoryAllocation;
    *event = AddEvent(std::move(state));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Api(__func__, Rule::kAlways, [&](Runtime&, auto&) {
    if (Events().erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    const auto state = FindEvent(event);
    if (queue && queue->capture && flags == cudaEventRecordExternal)
      return RefuseExternal(*queue, "cudaEventRecordWithFlags");
    return queue && state ? Record(runtime, queue, state.get()) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    const auto state = FindEvent(event);
    if (queue && queue->capture && flags == cudaEventWaitExternal) return RefuseExternal(*queue, "cudaStreamWaitEvent");
    return queue && state ? WaitInStream(runtime, queue, *state) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto&) {
    const auto state = FindEvent(event);
    if (!state) return cudaErrorInvalidResourceHandle;
    if (state->capture) return cudaErrorCapturedEvent;
    if (Reached(*state)) return runtime.device(CurrentDevice()).stuck;
    runtime.Want(state->place);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto& lock) {
    const auto state = FindEvent(event);
    if (!state) return cudaErrorInvalidResourceHandle;
    if (state->capture) return cudaErrorCapturedEvent;
    if (state->recorded) runtime.Wait(lock, Place(state->place));
    while (!Reached(*state))
      runtime.work_done.wait_for(lock, std::chrono::microseconds(200));  // another process gets there
    return runtime.device(CurrentDevice()).stuck;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const auto a = FindEvent(start), b = FindEvent(end);
    if (!a || !b || !a->timed || !b->timed || !a->recorded || !b->recorded) return cudaErrorInvalidResourceHandle;
    if (!Reached(*a) || !Reached(*b)) return cudaErrorNotReady;
    *milliseconds = static_cast<float>((*b->seconds - *a->seconds) * 1e3);
    return cudaSuccess;
  });
}

}  // extern "C"
