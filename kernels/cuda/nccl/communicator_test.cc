// Communicators between processes, on the test runtime's NCCL: their beginning, their end, and what goes wrong.
#include "kernels/cuda/nccl/communicator.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/cuda/nccl/watchdog.h"
#include "tests/host_cuda/runtime/testing/processes.h"

namespace sluice::kernels::cuda {
namespace {

using host_cuda::RankResult;
using host_cuda::RunRanks;
using testing::HasSubstr;

// In a rank's process: says what it is, and ends it.
#define RANK_OK(expression)                                                                    \
  do {                                                                                         \
    if (const absl::Status status_ = (expression); !status_.ok()) {                            \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, std::string(status_.message()).c_str()); \
      return 100;                                                                              \
    }                                                                                          \
  } while (false)
#define RANK_EXPECT(condition)                                              \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      return 101;                                                           \
    }                                                                       \
  } while (false)

// What rank 0 tells the others: the id, in memory that all share. The library is loaded in the ranks alone, since a
// process that used CUDA may not fork.
class SharedId {
 public:
  SharedId()
      : memory_(static_cast<Memory*>(
            mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (memory_ == MAP_FAILED) std::abort();
  }
  ~SharedId() { munmap(memory_, sizeof(Memory)); }

  ncclUniqueId Get(const NcclLibrary& nccl, int rank) {
    if (rank == 0) {
      memory_->id = *NewNcclId(nccl);
      memory_->there.store(true);
    }
    while (!memory_->there) absl::SleepFor(absl::Milliseconds(1));
    return memory_->id;
  }

 private:
  struct Memory {
    std::atomic<bool> there;
    ncclUniqueId id;
  };
  Memory* const memory_;
};

struct Rank {
  std::unique_ptr<Communicator> communicator;
  cudaStream_t stream = nullptr;
  float* buffer = nullptr;  // [256]

  absl::Status Begin(SharedId& id, int rank, int size, absl::Duration timeout = absl::Seconds(20),
                     std::function<absl::Status()> peers = nullptr) {
    auto nccl = NcclLibrary::Load("");
    if (!nccl.ok()) return nccl.status();
    auto made = Communicator::Create(*nccl, {.purpose = "a test",
                                             .id = id.Get(**nccl, rank),
                                             .rank = rank,
                                             .size = size,
                                             .timeout = timeout,
                                             .max_ctas = 2,
                                             .peers = std::move(peers)});
    if (!made.ok()) return made.status();
    communicator = *std::move(made);
    void* memory = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMalloc(&memory, 256 * sizeof(float)) != cudaSuccess) {
      return absl::InternalError("no memory");
    }
    buffer = static_cast<float*>(memory);
    const std::vector<float> own(256, float(rank + 1));
    (void)cudaMemcpy(buffer, own.data(), sizeof(float) * own.size(), cudaMemcpyHostToDevice);
    (void)cudaDeviceSynchronize();  // the copy may return before it has arrived, and `stream` does not wait for it
    return absl::OkStatus();
  }

  // Of `count` elements each, in place.
  absl::Status AllGather(size_t count) {
    return communicator->Issue("an all-gather", [&](const NcclLibrary& nccl, ncclComm_t comm) {
      return nccl.all_gather(buffer + size_t(communicator->rank()) * count, buffer, count, ncclFloat32, comm, stream);
    });
  }
};

TEST(NcclLibrary, SaysWhatToDoWhereItIsMissing) {
  const auto missing = NcclLibrary::Load("libnccl-that-is-not-there.so");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("libnccl-that-is-not-there.so"));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("--nccl-library"));
  const auto other = NcclLibrary::Load("libc.so.6");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("libc.so.6 has no ncclGetVersion"));
}

TEST(NcclLibrary, OneFileInAProcess) {
  const auto results = RunRanks(1, [](int) {
    const auto nccl = NcclLibrary::Load("");
    RANK_OK(nccl.status());
    RANK_EXPECT((*nccl)->version >= NCCL_VERSION(2, 18, 1));
    RANK_EXPECT(*NcclLibrary::Load(kNcclName) == *nccl);
    RANK_EXPECT(NcclLibrary::Load("libc.so.6").status().code() == absl::StatusCode::kFailedPrecondition);
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
}

TEST(Communicator, BeginsExchangesAndEnds) {
  SharedId id;
  const auto results = RunRanks(3, [&](int rank) {
    Rank me;
    RANK_OK(me.Begin(id, rank, 3));
    RANK_OK(me.AllGather(10));  // rank r's run begins at 10 r
    RANK_OK(me.communicator->Check());
    std::vector<float> all(30);
    RANK_EXPECT(cudaMemcpyAsync(all.data(), me.buffer, sizeof(float) * 30, cudaMemcpyDeviceToHost, me.stream) ==
                cudaSuccess);
    RANK_EXPECT(cudaStreamSynchronize(me.stream) == cudaSuccess);
    for (int i = 0; i < 30; ++i) RANK_EXPECT(all[size_t(i)] == float(i / 10 + 1));
    RANK_OK(me.communicator->Finish(absl::Seconds(20)));
    RANK_EXPECT(!me.AllGather(10).ok());
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
}

TEST(Communicator, RecordedAndReplayed) {
  SharedId id;
  const auto results = RunRanks(2, [&](int rank) {
    Rank me;
    RANK_OK(me.Begin(id, rank, 2));
    RANK_EXPECT(cudaStreamBeginCapture(me.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    RANK_OK(me.AllGather(8));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    RANK_EXPECT(cudaStreamEndCapture(me.stream, &graph) == cudaSuccess);
    RANK_EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    RANK_EXPECT(cudaGraphDestroy(graph) == cudaSuccess);
    for (int round = 1; round <= 3; ++round) {
      const std::vector<float> own(8, float(10 * round + rank));
      RANK_EXPECT(cudaMemcpyAsync(me.buffer + 8 * rank, own.data(), sizeof(float) * 8, cudaMemcpyHostToDevice,
                                  me.stream) == cudaSuccess);
      RANK_EXPECT(cudaGraphLaunch(exec, me.stream) == cudaSuccess);
      std::vector<float> all(16);
      RANK_EXPECT(cudaMemcpyAsync(all.data(), me.buffer, sizeof(float) * 16, cudaMemcpyDeviceToHost, me.stream) ==
                  cudaSuccess);
      RANK_EXPECT(cudaStreamSynchronize(me.stream) == cudaSuccess);
      for (int i = 0; i < 16; ++i) RANK_EXPECT(all[size_t(i)] == float(10 * round + i / 8));
    }
    RANK_EXPECT(cudaGraphExecDestroy(exec) == cudaSuccess);  // before the communicator
    RANK_OK(me.communicator->Finish(absl::Seconds(20)));
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
}

TEST(Communicator, ARankThatNeverComes) {
  SharedId id;
  const auto results = RunRanks(1, [&](int) {
    Rank me;
    const absl::Time begun = absl::Now();
    const absl::Status status = me.Begin(id, 0, 3, absl::Milliseconds(300));
    RANK_EXPECT(absl::Now() - begun < absl::Seconds(5));
    RANK_EXPECT(status.code() == absl::StatusCode::kDeadlineExceeded);
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("a test, rank 0 of 3: waited 300ms for the other 2 ranks to come"));
}

TEST(Communicator, ARankThatIsKnownToBeLostEndsTheWait) {
  SharedId id;
  const auto results = RunRanks(1, [&](int) {
    Rank me;
    const absl::Time begun = absl::Now();
    const absl::Status status = me.Begin(id, 0, 2, absl::Seconds(50), [begun] {
      return absl::Now() - begun > absl::Milliseconds(200) ? absl::UnavailableError("rank 1 was killed")
                                                           : absl::OkStatus();
    });
    RANK_EXPECT(absl::Now() - begun < absl::Seconds(5));
    RANK_EXPECT(status.code() == absl::StatusCode::kUnavailable);
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("rank 1 was killed"));
}

// The stream is free and the reason is known.
int EndOfAWait(Rank& me, absl::Duration timeout, absl::StatusCode code) {
  const absl::Time begun = absl::Now();
  {
    Watchdog watchdog(me.communicator.get());
    const Watchdog::Wait wait(&watchdog, "the step", timeout);
    RANK_EXPECT(cudaStreamSynchronize(me.stream) == cudaSuccess);
  }
  const absl::Status status = me.communicator->status();
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  RANK_EXPECT(status.code() == code);
  RANK_EXPECT(absl::Now() - begun < absl::Seconds(10));
  RANK_EXPECT(me.AllGather(10) == status);
  RANK_EXPECT(me.communicator->Finish(absl::Seconds(1)) == status);
  return 0;
}

TEST(Watchdog, EndsTheWaitForARankThatDied) {
  SharedId id;
  const auto results = RunRanks(2, [&](int rank) {
    Rank me;
    RANK_OK(me.Begin(id, rank, 2));
    if (rank == 1) {
      absl::SleepFor(absl::Milliseconds(300));  // rank 0 waits in its operation
      kill(getpid(), SIGKILL);
    }
    RANK_OK(me.AllGather(10));
    return EndOfAWait(me, absl::Seconds(50), absl::StatusCode::kUnavailable);
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_EQ(results[1].status, -SIGKILL);
  EXPECT_THAT(results[0].output, HasSubstr("a test, rank 0 of 2: what was issued: remote process exited"));
  EXPECT_THAT(results[0].output, HasSubstr("rank 1 is gone"));
}

TEST(Watchdog, EndsTheWaitForARankThatStandsStill) {
  SharedId id;
  const auto results = RunRanks(2, [&](int rank) {
    setenv("HOST_CUDA_NCCL_STALL", "1:1:100000000", 1);
    Rank me;
    RANK_OK(me.Begin(id, rank, 2));
    RANK_OK(me.AllGather(10));
    // The one that stands still finds out as well: by its own time, or when the other has left.
    if (rank == 1) {
      Watchdog watchdog(me.communicator.get());
      const Watchdog::Wait wait(&watchdog, "the step", absl::Seconds(2));
      RANK_EXPECT(cudaStreamSynchronize(me.stream) == cudaSuccess);
      RANK_EXPECT(!me.communicator->status().ok());
      return 0;
    }
    return EndOfAWait(me, absl::Milliseconds(400), absl::StatusCode::kDeadlineExceeded);
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("a test, rank 0 of 2: waited 400ms for the step"));
}

TEST(Communicator, TheFirstReasonStays) {
  SharedId id;
  const auto results = RunRanks(1, [&](int rank) {
    Rank me;
    RANK_OK(me.Begin(id, rank, 1));
    me.communicator->Abort(absl::InternalError("first"));
    me.communicator->Abort(absl::InternalError("second"));
    RANK_EXPECT(me.communicator->Check() == absl::InternalError("first"));
    RANK_EXPECT(me.AllGather(10) == absl::InternalError("first"));
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
}

TEST(Communicator, AFailingCallIsItsError) {
  SharedId id;
  const auto results = RunRanks(1, [&](int rank) {
    setenv("HOST_CUDA_FAIL", "ncclAllGather:1=ncclSystemError", 1);
    Rank me;
    RANK_OK(me.Begin(id, rank, 1));
    const absl::Status status = me.AllGather(10);
    RANK_EXPECT(status.code() == absl::StatusCode::kInternal);
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    RANK_EXPECT(me.AllGather(10) == status);
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("a test, rank 0 of 1: an all-gather: unhandled system error"));
}

}  // namespace
}  // namespace sluice::kernels::cuda
