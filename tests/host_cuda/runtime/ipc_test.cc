// Memory and events between processes. The processes are forked before CUDA is used in this one.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "tests/host_cuda/runtime/testing/processes.h"

namespace host_cuda {
namespace {

// In a rank: anything but success ends it with the line.
#define MUST(call)                                                                          \
  do {                                                                                      \
    if (const cudaError_t error_ = (call); error_ != cudaSuccess) {                         \
      std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error_)); \
      return 1;                                                                             \
    }                                                                                       \
  } while (false)

struct Hello {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

int Maker(int socket) {
  int* p = nullptr;
  cudaStream_t s = nullptr;
  cudaEvent_t event = nullptr;
  MUST(cudaMalloc(reinterpret_cast<void**>(&p), 1000 * sizeof(int)));
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  Hello hello;
  MUST(cudaIpcGetMemHandle(&hello.memory, p));
  MUST(cudaIpcGetEventHandle(&hello.event, event));
  void* own = nullptr;
  if (cudaIpcOpenMemHandle(&own, hello.memory, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess) return 2;
  if (write(socket, &hello, sizeof hello) != sizeof hello) return 3;
  char go = 0;
  if (read(socket, &go, 1) != 1) return 4;
  MUST(cudaMemsetAsync(p, 1, 4000, s));
  MUST(cudaEventRecord(event, s));
  if (write(socket, &go, 1) != 1) return 5;  // recorded, not reached
  MUST(cudaStreamSynchronize(s));
  if (read(socket, &go, 1) != 1) return 6;
  int last = 0;
  MUST(cudaMemcpy(&last, p + 999, sizeof last, cudaMemcpyDeviceToHost));
  return last == 0x02020202 ? 0 : 7;
}

int Opener(int socket) {
  Hello hello;
  if (read(socket, &hello, sizeof hello) != sizeof hello) return 2;
  void *p = nullptr, *again = nullptr;
  cudaEvent_t event = nullptr;
  cudaStream_t s = nullptr;
  MUST(cudaIpcOpenMemHandle(&p, hello.memory, cudaIpcMemLazyEnablePeerAccess));
  MUST(cudaIpcOpenMemHandle(&again, hello.memory, cudaIpcMemLazyEnablePeerAccess));
  if (p != again) return 3;
  MUST(cudaIpcOpenEventHandle(&event, hello.event));
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  char go = 0;
  if (write(socket, &go, 1) != 1 || read(socket, &go, 1) != 1) return 4;
  int first = 0;
  MUST(cudaStreamWaitEvent(s, event, 0));
  MUST(cudaMemcpyAsync(&first, p, sizeof first, cudaMemcpyDeviceToHost, s));
  if (first != 0x01010101) return 5;
  MUST(cudaMemsetAsync(p, 2, 4000, s));
  MUST(cudaStreamSynchronize(s));
  MUST(cudaIpcCloseMemHandle(p));
  MUST(cudaIpcCloseMemHandle(p));
  if (cudaIpcCloseMemHandle(p) == cudaSuccess) return 6;
  if (write(socket, &go, 1) != 1) return 7;
  return 0;
}

TEST(Ipc, MemoryAndEventsBetweenProcesses) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const auto results = RunRanks(2, [&](int rank) { return rank == 0 ? Maker(ends[0]) : Opener(ends[1]); });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_EQ(results[1].status, 0);
}

TEST(Ipc, AHandleOfADeadProcessIsRefused) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto results = RunRanks(2, [&](int rank) {
    cudaIpcMemHandle_t handle;
    if (rank == 0) {
      void* p = nullptr;
      MUST(cudaMalloc(&p, 4));
      MUST(cudaIpcGetMemHandle(&handle, p));
      const pid_t self = getpid();
      return write(ends[1], &handle, sizeof handle) == sizeof handle &&
                     write(ends[1], &self, sizeof self) == sizeof self
                 ? 0
                 : 2;
    }
    pid_t maker = 0;
    if (read(ends[0], &handle, sizeof handle) != sizeof handle || read(ends[0], &maker, sizeof maker) != sizeof maker)
      return 3;
    void* p = nullptr;
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 5000 && error == cudaSuccess; ++i) {  // until it is gone
      error = cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess);
      if (error == cudaSuccess) cudaIpcCloseMemHandle(p);
      usleep(1000);
    }
    return error == cudaErrorMapBufferObjectFailed ? 0 : 4;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_EQ(results[1].status, 0);
  EXPECT_THAT(results[1].output, testing::HasSubstr("that made the handle is gone"));
}

TEST(Ipc, CudaDoesNotSurviveAFork) {
  const auto results = RunRanks(1, [](int) {
    int count = 0;
    MUST(cudaGetDeviceCount(&count));
    const auto inner = RunRanks(1, [](int) {
      void* p = nullptr;
      return cudaMalloc(&p, 4) == cudaErrorInitializationError ? 0 : 2;
    });
    return inner[0].status;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_THAT(results[0].output, testing::HasSubstr("forked from one that had used CUDA"));
}

}  // namespace
}  // namespace host_cuda
