#include "tests/host_cuda/runtime/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/injection.h"
#include "tests/host_cuda/runtime/instance.h"
#include "tests/host_cuda/runtime/memory_fault.h"
#include "tests/host_cuda/runtime/module.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

using Clock = std::chrono::steady_clock;

// How long a device whose works all wait for something outside looks away.
constexpr auto kStalled = std::chrono::microseconds(100);

thread_local int current_device = 0;
thread_local bool progressed = false;

}  // namespace

int& CurrentDevice() {
  return current_device;
}
void Progressed() {
  progressed = true;
}

Runtime& TheRuntime() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

bool Place::Reached() const {
  return !queue || queue->done >= done;
}

Runtime::Runtime() {
  BeTheOnlyInstance();
  Reset(SettingsFromEnvironment());
  WatchFaults();
}

void Runtime::Reset(const RuntimeSettings& fresh) {
  settings = fresh;
  const std::string wrong = TheFailurePlan().Set(settings.fail);
  if (!wrong.empty()) {
    std::fprintf(stderr, "host_cuda: HOST_CUDA_FAIL: %s\n", wrong.c_str());
    std::abort();
  }
  streams.clear();
  thread_streams.clear();
  captures.clear();
  ForgetAttributes();
  memory = std::make_unique<Memory>(settings.devices, settings.memory, settings.seed);
  // Device threads keep their Device; there may be fewer of use now.
  while (devices.size() < static_cast<size_t>(settings.devices)) devices.push_back(std::make_unique<Device>());
  for (size_t i = 0; i < devices.size(); ++i) {
    Device& device = *devices[i];
    device.index = static_cast<int>(i);
    device.stuck = cudaSuccess;
    device.queues.clear();
    device.peers.clear();
    device.wanted.clear();
    device.limits.clear();
    device.pool = {};
    device.random.seed(settings.seed * 16 + i);
    auto queue = MakeQueue(device.index, cudaStreamDefault, 0);
    queue->default_stream = true;
  }
}

std::shared_ptr<Queue> Runtime::MakeQueue(int device, unsigned flags, int priority) {
  static uint64_t ids = 0;
  auto queue = std::make_shared<Queue>();
  queue->id = ++ids;
  queue->device = device;
  queue->flags = flags;
  queue->blocking = (flags & cudaStreamNonBlocking) == 0;
  queue->priority = priority;
  this->device(device).queues.push_back(queue);
  return queue;
}

std::shared_ptr<Queue> Runtime::Find(cudaStream_t stream) {
  if (settings.devices == 0) return nullptr;
  if (stream == nullptr || stream == cudaStreamLegacy) return device(CurrentDevice()).queues.front();
  if (stream == cudaStreamPerThread) {
    auto& queue = thread_streams[{std::this_thread::get_id(), CurrentDevice()}];
    if (!queue) queue = MakeQueue(CurrentDevice(), cudaStreamDefault, 0);
    return queue;
  }
  auto found = streams.find(stream);
  return found == streams.end() ? nullptr : found->second;
}

void Runtime::Append(const std::shared_ptr<Queue>& queue, DeviceWork work, std::vector<Place> after) {
  Device& owner = device(queue->device);
  if (queue->default_stream) {
    for (const auto& other : owner.queues) {
      if (other != queue && other->blocking) after.push_back({other, other->issued});
    }
  } else if (queue->blocking) {
    after.push_back({owner.queues.front(), owner.queues.front()->issued});
  }
  std::erase_if(after, [](const Place& place) { return place.Reached(); });
  const bool idle =
      std::all_of(owner.queues.begin(), owner.queues.end(), [](const auto& q) { return q->items.empty(); });
  owner.last_came = Clock::now();
  if (idle) owner.first_came = owner.last_came;
  queue->items.push_back({std::move(work), std::move(after)});
  ++queue->issued;
  if (!owner.thread_runs) {
    owner.thread_runs = true;
    std::thread(&Runtime::RunDevice, this, &owner).detach();
  }
  work_came.notify_all();
}

void Runtime::Want(const Place& place) {
  if (place.Reached()) return;
  for (auto& device : devices) {  // what it comes after may be on other devices
    auto same = std::find_if(device->wanted.begin(), device->wanted.end(),
                             [&](const Place& other) { return other.queue == place.queue; });
    if (same == device->wanted.end()) {
      device->wanted.push_back(place);
    } else {
      same->done = std::max(same->done, place.done);
    }
  }
  work_came.notify_all();
}

void Runtime::Wait(std::unique_lock<std::mutex>& lock, const Place& place) {
  Want(place);
  while (!place.Reached()) work_done.wait(lock);
}

void Runtime::WaitForDevice(std::unique_lock<std::mutex>& lock, int index) {
  const auto queues = device(index).queues;
  std::vector<Place> places;
  for (const auto& queue : queues) places.push_back({queue, queue->issued});
  for (const Place& place : places) Wait(lock, place);
}

bool Runtime::MayRun(Device* device) const {
  std::erase_if(device->wanted, [](const Place& place) { return place.Reached(); });
  if (!device->wanted.empty()) return true;
  const auto now = Clock::now();
  if (now - device->last_came < settings.late && now - device->first_came < 20 * settings.late) return false;
  for (const auto& queue : device->queues) device->wanted.push_back({queue, queue->issued});
  return true;
}

void Runtime::RunDevice(Device* device) {
  current_device = device->index;
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    std::vector<std::shared_ptr<Queue>> ready;
    bool any = false;
    for (const auto& queue : device->queues) {
      if (queue->items.empty()) continue;
      any = true;
      const auto& after = queue->items.front().after;
      if (std::all_of(after.begin(), after.end(), [](const Place& p) { return p.Reached(); })) ready.push_back(queue);
    }
    if (!any) {
      work_came.wait(lock);
      continue;
    }
    if (!MayRun(device)) {
      work_came.wait_for(lock, settings.late);
      continue;
    }
    if (ready.empty()) {  // works of other devices come first
      work_came.wait_for(lock, kStalled);
      continue;
    }
    std::shuffle(ready.begin(), ready.end(), device->random);
    bool moved = false;
    for (size_t i = 0; i < ready.size() && !moved; ++i) RunOne(lock, device, ready[i], &moved);
    if (!moved) work_came.wait_for(lock, kStalled);
  }
}

void Runtime::RunOne(std::unique_lock<std::mutex>& lock, Device* device, const std::shared_ptr<Queue>& queue,
                     bool* moved) {
  if (queue->items.empty()) return;  // Reset came between
  // A stuck device runs nothing any more, and what waits for it is let go.
  const bool skip = device->stuck != cudaSuccess;
  queue->running = true;
  Item& item = queue->items.front();  // stays where it is: only this thread takes items off
  lock.unlock();
  progressed = false;
  const bool done = skip || item.work.step();
  lock.lock();
  queue->running = false;
  if (!done) {
    *moved = progressed;
    return;
  }
  *moved = true;
  Item finished = std::move(queue->items.front());
  queue->items.pop_front();
  ++queue->done;
  if (queue->closed && queue->items.empty()) std::erase(device->queues, queue);
  work_done.notify_all();
  work_came.notify_all();
  lock.unlock();
  finished = {};  // what it holds may take locks to go
  lock.lock();
}

}  // namespace host_cuda::rt

namespace host_cuda {

using rt::Runtime;
using rt::TheRuntime;

cudaError_t Enqueue(cudaStream_t stream, DeviceWork work) {
  Runtime& runtime = TheRuntime();
  std::unique_lock<std::mutex> lock(runtime.mutex);
  const auto queue = runtime.Find(stream);
  if (!queue) return cudaErrorInvalidResourceHandle;
  return rt::AppendOrCapture(runtime, queue, std::move(work));
}

DeviceWork Repeatable(std::string name, DeviceWork::Kind kind, std::function<void()> run) {
  DeviceWork work;
  work.name = name;
  work.kind = kind;
  work.step = [run] {
    run();
    return true;
  };
  work.fresh = [name = std::move(name), kind, run] { return Repeatable(name, kind, run); };
  return work;
}

void DeviceFault(cudaError_t error, const std::string& text) {
  Report("device " + std::to_string(rt::CurrentDevice()) + ": " + text);
  Runtime& runtime = TheRuntime();
  std::lock_guard<std::mutex> lock(runtime.mutex);
  if (runtime.settings.abort_on_error) std::abort();
  auto& device = runtime.device(rt::CurrentDevice());
  if (device.stuck == cudaSuccess) device.stuck = error;
}

void Found(const std::string& text) {
  Report("device " + std::to_string(rt::CurrentDevice()) + ": " + text);
  Runtime& runtime = TheRuntime();
  std::lock_guard<std::mutex> lock(runtime.mutex);
  if (runtime.settings.abort_on_error) std::abort();
}

std::string CheckAccess(const void* p, size_t bytes) {
  if (bytes == 0) return {};
  Runtime& runtime = TheRuntime();
  std::lock_guard<std::mutex> lock(runtime.mutex);
  const rt::Block* block = runtime.memory->Find(p);
  if (block == nullptr) {
    for (int d = 0; d < runtime.settings.devices; ++d) {
      if (runtime.memory->arena(d).Contains(p)) return "no device memory is there";
    }
    return {};
  }
  if (block->state != rt::Block::State::kLive) return "it is " + Describe(*block);
  const size_t offset = static_cast<size_t>(static_cast<const char*>(p) - block->base);
  if (offset + bytes > block->bytes) {
    return std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of " + Describe(*block);
  }
  return {};
}

cudaError_t StuckWith(int device) {
  Runtime& runtime = TheRuntime();
  std::lock_guard<std::mutex> lock(runtime.mutex);
  return device >= 0 && device < runtime.settings.devices ? runtime.device(device).stuck : cudaErrorInvalidDevice;
}

int DeviceOf(cudaStream_t stream) {
  Runtime& runtime = TheRuntime();
  std::lock_guard<std::mutex> lock(runtime.mutex);
  const auto queue = runtime.Find(stream);
  return queue ? queue->device : -1;
}

}  // namespace host_cuda
