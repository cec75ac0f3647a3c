// What a rank of a test needs: checks that end it with the line, a communicator, buffers.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/host_cuda/runtime/testing/processes.h"

#define CUDA_OK(call)                                                                       \
  do {                                                                                      \
    if (const cudaError_t error_ = (call); error_ != cudaSuccess) {                         \
      std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error_)); \
      return 100;                                                                           \
    }                                                                                       \
  } while (false)
#define NCCL_OK(call)                                                                          \
  do {                                                                                         \
    if (const ncclResult_t result_ = (call); result_ != ncclSuccess) {                         \
      std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, ncclGetErrorString(result_)); \
      return 101;                                                                              \
    }                                                                                          \
  } while (false)
#define RANK_EXPECT(condition)                                              \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      return 102;                                                           \
    }                                                                       \
  } while (false)

namespace host_cuda::nccl {

inline ncclUniqueId NewId() {
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) std::abort();
  return id;
}

// Until the communicator is no longer busy; its state.
inline ncclResult_t Poll(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress) usleep(200);
  return state;
}

// Findings are reported and become errors; what waits longer says so.
inline void Environment(const char* timeout_ms) {
  setenv("HOST_CUDA_ON_ERROR", "report", 1);
  setenv("HOST_CUDA_NCCL_TIMEOUT_MS", timeout_ms, 1);
}

// Until the communicator has an error of its own; ncclSuccess: it has none after that long.
inline ncclResult_t ErrorOf(ncclComm_t comm, int milliseconds = 10000) {
  ncclResult_t state = ncclSuccess;
  for (int i = 0; i < milliseconds; ++i) {
    ncclCommGetAsyncError(comm, &state);
    if (state != ncclSuccess && state != ncclInProgress) return state;
    usleep(1000);
  }
  return ncclSuccess;
}

// A communicator that comes up; what the call returned.
inline ncclResult_t BeginNonBlocking(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return ncclCommInitRankConfig(comm, ranks, id, rank, &config);
}

inline double SecondsSince(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// When a rank died, for the others to know. Made before the ranks are.
class Death {
 public:
  Death()
      : when_(static_cast<std::atomic<int64_t>*>(
            mmap(nullptr, sizeof *when_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (when_ == MAP_FAILED) std::abort();
  }
  ~Death() { munmap(when_, sizeof *when_); }
  Death(const Death&) = delete;
  Death& operator=(const Death&) = delete;

  // As a crash, an operator or the kernel ends a process: nothing of it runs any more.
  [[noreturn]] void Die() {
    *when_ = std::chrono::steady_clock::now().time_since_epoch().count();
    kill(getpid(), SIGKILL);
    std::abort();
  }

  double SecondsSince() const {
    return nccl::SecondsSince(std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(*when_)));
  }

 private:
  std::atomic<int64_t>* when_;
};

// A rank's communicator, stream and buffers.
struct Rank {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  static constexpr size_t kCount = 1000;

  int Start(int ranks, const ncclUniqueId& id, int rank, bool blocking = true) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    RANK_EXPECT(result == (blocking ? ncclSuccess : ncclInProgress));
    NCCL_OK(Poll(comm));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return 0;
  }

  static float* Device(const std::vector<float>& values) {
    void* p = nullptr;
    if (cudaMalloc(&p, values.size() * sizeof(float)) != cudaSuccess) return nullptr;
    cudaMemcpy(p, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
    return static_cast<float*>(p);
  }

  std::vector<float> Host(const float* p, size_t count) const {
    std::vector<float> values(count);
    cudaMemcpyAsync(values.data(), p, count * sizeof(float), cudaMemcpyDeviceToHost, stream);
    return values;
  }
};

}  // namespace host_cuda::nccl
