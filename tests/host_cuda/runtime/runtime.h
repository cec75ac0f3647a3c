// The state of the fake runtime and the threads that play the devices.
//
// A stream is a queue of works. Each device has one thread, which takes, at random (seeded), a stream whose head may
// run, and runs that one work; so at any time the order of what no stream, event or default-stream rule orders is open.
// It starts late (RuntimeSettings::late) or when the host waits or asks, so that what forgets to wait for the device reads what was there before.
//
// One mutex guards everything here; works run without it. The process has one Runtime, made at first use and never
// destroyed, as the C interface of CUDA has no place to keep it and device threads outlive main.
#pragma once

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/host_cuda/runtime/device_work.h"
#include "tests/host_cuda/runtime/memory.h"
#include "tests/host_cuda/runtime/settings.h"

namespace host_cuda::rt {

struct Capture;
struct Queue;

// A place in a stream: reached when that many of its works are done.
struct Place {
  std::shared_ptr<Queue> queue;
  uint64_t done = 0;
  bool Reached() const;
};

struct Item {
  DeviceWork work;
  std::vector<Place> after;
};

// A stream's works. Lives as long as anything waits for it, the handle may be gone.
struct Queue {
  uint64_t id = 0;
  int device = 0;
  bool default_stream = false;  // the legacy one
  bool blocking = true;         // waits for the default stream and is waited for by it
  int priority = 0;             // kept, not obeyed
  unsigned flags = 0;
  std::deque<Item> items;
  uint64_t issued = 0, done = 0;
  bool running = false;
  bool closed = false;  // its handle is gone
  std::shared_ptr<Capture> capture;
  std::vector<int> tips;  // the captured nodes that the next one follows
};

// The one memory pool of a device. It keeps nothing: what is freed counts as free at once.
struct Pool {
  uint64_t release_threshold = 0;
  std::map<cudaMemPoolAttr, int> reuse;  // the switches that were set; 1 unless set
  uint64_t used_high = 0;
};

struct Device {
  int index = 0;
  cudaError_t stuck = cudaSuccess;             // every call fails with it
  std::vector<std::shared_ptr<Queue>> queues;  // the default stream first
  std::mt19937_64 random;
  bool thread_runs = false;
  // Places that somebody waits for or asked about. Until they are reached the device runs, then it stands still again: so
  // what runs when the host goes on depends on what it asked for, not on how fast either is.
  std::vector<Place> wanted;
  std::chrono::steady_clock::time_point first_came, last_came;
  std::set<int> peers;                 // that may be accessed
  std::map<cudaLimit, size_t> limits;  // that were set
  Pool pool;
};

class Runtime {
 public:
  Runtime();

  std::mutex mutex;
  std::condition_variable work_came, work_done;
  RuntimeSettings settings;
  std::unique_ptr<Memory> memory;
  std::vector<std::unique_ptr<Device>> devices;
  std::map<cudaStream_t, std::shared_ptr<Queue>> streams;
  std::map<std::pair<std::thread::id, int>, std::shared_ptr<Queue>> thread_streams;  // cudaStreamPerThread
  std::vector<std::shared_ptr<Capture>> captures;                                    // that have begun and not ended
  pid_t pid = getpid();

  Device& device(int index) { return *devices[static_cast<size_t>(index)]; }

  // All below: with the mutex held.
  void Reset(const RuntimeSettings& fresh);  // drops works, memory, streams, errors
  std::shared_ptr<Queue> MakeQueue(int device, unsigned flags, int priority);
  std::shared_ptr<Queue> Find(cudaStream_t stream);  // nullptr: no such stream
  void Append(const std::shared_ptr<Queue>& queue, DeviceWork work, std::vector<Place> after = {});
  void Wait(std::unique_lock<std::mutex>& lock, const Place& place);
  void WaitForDevice(std::unique_lock<std::mutex>& lock, int device);
  void Want(const Place& place);

 private:
  void RunDevice(Device* device);
  void RunOne(std::unique_lock<std::mutex>& lock, Device* device, const std::shared_ptr<Queue>& queue, bool* moved);
  bool MayRun(Device* device) const;
};

Runtime& TheRuntime();

// The device that the calling thread has set; on a device thread its own.
int& CurrentDevice();

// A step that returns false although it did something says so, and is called again at once.
void Progressed();

}  // namespace host_cuda::rt
