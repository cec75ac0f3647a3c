// Streams, and callbacks of the host in them.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/handles.h"
#include "tests/host_cuda/runtime/pinned_watch.h"
#include "tests/host_cuda/runtime/properties.h"

struct CUstream_st {};

namespace host_cuda::rt {
namespace {

// One thread of the process that runs callbacks, so that one that blocks stops only its own stream.
class Callbacks {
 public:
  void Post(std::function<void()> call) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
    if (!runs_) std::thread(&Callbacks::Run, this).detach();
    runs_ = true;
    came_.notify_one();
  }

 private:
  void Run() {
    InHostCallback() = true;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      came_.wait(lock, [this] { return !calls_.empty(); });
      auto call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> calls_;
  bool runs_ = false;
};

Callbacks& TheCallbacks() {
  static Callbacks& callbacks = *new Callbacks;
  return callbacks;
}

DeviceWork HostWork(std::function<void()> function) {
  struct Call {
    bool posted = false;
    bool done = false;  // with the runtime's mutex
  };
  auto call = std::make_shared<Call>();
  DeviceWork work;
  work.name = "cudaLaunchHostFunc";
  work.kind = DeviceWork::Kind::kHost;
  work.fresh = [function] { return HostWork(function); };
  work.step = [call, function] {
    if (!call->posted) {
      call->posted = true;
      TheCallbacks().Post([call, function] {
        function();
        NoteHostCallback();
        std::lock_guard<std::mutex> lock(TheRuntime().mutex);
        call->done = true;
        TheRuntime().work_came.notify_all();
      });
    }
    std::lock_guard<std::mutex> lock(TheRuntime().mutex);
    return call->done;
  };
  return work;
}

cudaError_t MakeStream(Runtime& runtime, cudaStream_t* stream, unsigned flags, int priority) {
  if ((flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
  *stream = new CUstream_st;
  runtime.streams[*stream] =
      runtime.MakeQueue(CurrentDevice(), flags, std::clamp(priority, kGreatestPriority, kLeastPriority));
  return cudaSuccess;
}

}  // namespace

void ForgetStreams(Runtime& runtime) {
  for (const auto& [stream, queue] : runtime.streams) delete stream;
  runtime.streams.clear();
}

}  // namespace host_cuda::rt

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) { return MakeStream(runtime, stream, 0, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) { return MakeStream(runtime, stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return Api(__func__, Rule::kOrdinary,
             [&](Runtime& runtime, auto&) { return MakeStream(runtime, stream, flags, priority); });
}

// Returns at once; what is in the stream still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    auto found = runtime.streams.find(stream);
    if (found == runtime.streams.end()) return cudaErrorInvalidResourceHandle;
    const auto queue = found->second;
    if (const cudaError_t error = RefuseIfCapturing(queue, "cudaStreamDestroy")) return error;
    runtime.streams.erase(found);
    delete stream;
    queue->closed = true;
    if (queue->items.empty()) std::erase(runtime.device(queue->device).queues, queue);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto& lock) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = RefuseIfCapturing(queue, "cudaStreamSynchronize")) return error;
    runtime.Wait(lock, {queue, queue->issued});
    return runtime.device(queue->device).stuck;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = RefuseIfCapturing(queue, "cudaStreamQuery")) return error;
    if (queue->done >= queue->issued) return runtime.device(queue->device).stuck;
    runtime.Want({queue, queue->issued});
    return cudaErrorNotReady;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    return AppendOrCapture(runtime, queue, HostWork([=] { function(data); }));
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned flags) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (function == nullptr || flags != 0) return cudaErrorInvalidValue;
    return AppendOrCapture(runtime, queue, HostWork([=] { function(stream, cudaSuccess, data); }));
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    *priority = queue->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    *flags = queue->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    *device = queue->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    *id = queue->id;
    return cudaSuccess;
  });
}

}  // extern "C"
