// A communicator's states from its birth to its end, and that its end never waits for those who are gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/host_cuda/nccl/testing/ranks.h"

namespace host_cuda::nccl {
namespace {

using testing::HasSubstr;

TEST(Lifecycle, ComesUpWhenAllHaveComeAndNotBefore) {
  const ncclUniqueId id = NewId();
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const auto results = RunRanks(2, [&](int rank) {
    Environment("20000");
    ncclComm_t comm = nullptr;
    char byte = 0;
    if (rank == 1) RANK_EXPECT(read(go[0], &byte, 1) == 1);
    RANK_EXPECT(BeginNonBlocking(&comm, 2, id, rank) == ncclInProgress);
    if (rank == 0) {
      for (int i = 0; i < 20; ++i) {
        ncclResult_t state = ncclSuccess;
        NCCL_OK(ncclCommGetAsyncError(comm, &state));
        RANK_EXPECT(state == ncclInProgress);
        usleep(1000);
      }
      RANK_EXPECT(write(go[1], &byte, 1) == 1);
    }
    NCCL_OK(Poll(comm));
    NCCL_OK(ncclCommDestroy(comm));
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
}

TEST(Lifecycle, ARankThatDiesWhileOthersAreAwaitedIsAnError) {
  const ncclUniqueId id = NewId();
  Death death;
  const auto results = RunRanks(2, [&](int rank) {  // of three: rank 2 never comes
    Environment("20000");
    ncclComm_t comm = nullptr;
    RANK_EXPECT(BeginNonBlocking(&comm, 3, id, rank) == ncclInProgress);
    if (rank == 1) {
      usleep(200000);
      death.Die();
    }
    RANK_EXPECT(Poll(comm) == ncclRemoteError);
    RANK_EXPECT(std::string(ncclGetLastError(comm)).find("rank 1 is gone") != std::string::npos);
    NCCL_OK(ncclCommAbort(comm));
    return 0;
  });
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].status, i == 1 ? -SIGKILL : 0);
}

TEST(Lifecycle, WrongArgumentsOfAnInit) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(1, [&](int) {
    Environment("20000");
    ncclComm_t comm = nullptr, again = nullptr;
    ncclConfig_t config = {};  // not initialised
    RANK_EXPECT(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    RANK_EXPECT(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
    RANK_EXPECT(ncclCommInitRank(&comm, 0, id, 0) == ncclInvalidArgument);
    RANK_EXPECT(BeginNonBlocking(&comm, 2, id, 0) == ncclInProgress);
    usleep(100000);
    RANK_EXPECT(BeginNonBlocking(&again, 2, id, 0) == ncclInProgress);
    RANK_EXPECT(Poll(again) == ncclInvalidUsage);
    NCCL_OK(ncclCommAbort(again));
    NCCL_OK(ncclCommAbort(comm));
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("was not made with NCCL_CONFIG_INITIALIZER"));
  EXPECT_THAT(results[0].output, HasSubstr("this rank was initialised twice"));
}

TEST(Lifecycle, FinalizeOfANonBlockingCommunicatorIsPolled) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(2, [&](int rank) {
    setenv("HOST_CUDA_NCCL_STALL", "1:1:100", 1);
    Environment("20000");
    Rank me;
    if (const int bad = me.Start(2, id, rank, /*blocking=*/false)) return bad;
    float* p = Rank::Device(std::vector<float>(100, 1));
    ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream);
    NCCL_OK(Poll(me.comm));
    RANK_EXPECT(ncclCommFinalize(me.comm) == ncclInProgress);
    RANK_EXPECT(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream) == ncclInvalidArgument);
    RANK_EXPECT(std::string(ncclGetLastError(me.comm)).find("after ncclCommFinalize") != std::string::npos);
    NCCL_OK(Poll(me.comm));
    CUDA_OK(cudaStreamSynchronize(me.stream));  // it was done before
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
}

TEST(Lifecycle, NoEndWaitsForADeadPeer) {
  for (const bool finalize : {false, true}) {
    for (const bool blocking : {false, true}) {
      SCOPED_TRACE(std::string(finalize ? "finalize, " : "destroy, ") + (blocking ? "blocking" : "non-blocking"));
      const ncclUniqueId id = NewId();
      Death death;
      const auto results = RunRanks(2, [&](int rank) {
        Environment("20000");
        Rank me;
        if (const int bad = me.Start(2, id, rank, blocking)) return bad;
        if (rank == 1) {
          usleep(200000);
          death.Die();
        }
        float* p = Rank::Device(std::vector<float>(100, 1));
        ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream);
        if (finalize) {
          ncclResult_t result = ncclCommFinalize(me.comm);
          if (result == ncclInProgress) result = Poll(me.comm);
          RANK_EXPECT(result == ncclRemoteError);
        }
        RANK_EXPECT(ncclCommDestroy(me.comm) == ncclRemoteError);
        CUDA_OK(cudaStreamSynchronize(me.stream));  // what could not be done has left it
        RANK_EXPECT(death.SecondsSince() < 1);
        return 0;
      });
      for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].status, i == 1 ? -SIGKILL : 0);
      EXPECT_THAT(results[0].output, HasSubstr("rank 1 is gone"));
    }
  }
}

TEST(Lifecycle, FinalizeSaysWhatItWaitsForAndAnotherThreadsAbortEndsIt) {
  const ncclUniqueId id = NewId();
  int over[2];
  ASSERT_EQ(pipe(over), 0);
  const auto results = RunRanks(2, [&](int rank) {
    Environment("100");
    Rank me;
    if (const int bad = me.Start(2, id, rank)) return bad;
    char byte = 0;
    if (rank == 1) {  // alive, and never answers
      RANK_EXPECT(read(over[0], &byte, 1) == 1);
      NCCL_OK(ncclCommAbort(me.comm));
      return 0;
    }
    float* p = Rank::Device(std::vector<float>(100, 1));
    NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream));
    ncclResult_t result = ncclSuccess;
    std::thread finalize([&] { result = ncclCommFinalize(me.comm); });
    usleep(400000);
    NCCL_OK(ncclCommAbort(me.comm));
    finalize.join();
    RANK_EXPECT(result == ncclInvalidArgument);
    CUDA_OK(cudaStreamSynchronize(me.stream));
    RANK_EXPECT(write(over[1], &byte, 1) == 1);
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("ncclCommFinalize on rank 0 of 2 on communicator"));
  EXPECT_THAT(results[0].output, HasSubstr("waits for 1 operations since 100 ms"));
}

TEST(Lifecycle, AStuckDeviceEndsIt) {
  for (const bool blocking : {false, true}) {
    const ncclUniqueId id = NewId();
    const auto results = RunRanks(1, [&](int) {
      setenv("HOST_CUDA_FAIL", "copy:1=cudaErrorIllegalAddress", 1);
      Environment("20000");
      Rank me;
      if (const int bad = me.Start(1, id, 0, blocking)) return bad;
      void* p = nullptr;
      CUDA_OK(cudaMalloc(&p, 400));
      float x = 0;
      // The device gets stuck once the operation is on its stream, not before: then the call itself would fail.
      std::atomic<bool> enqueued{false};
      CUDA_OK(cudaLaunchHostFunc(
          me.stream,
          [](void* flag) {
            while (!*static_cast<std::atomic<bool>*>(flag)) usleep(100);
          },
          &enqueued));
      CUDA_OK(cudaMemcpyAsync(p, &x, 4, cudaMemcpyHostToDevice, me.stream));  // the failure
      RANK_EXPECT(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream) ==
                  (blocking ? ncclSuccess : ncclInProgress));
      RANK_EXPECT(Poll(me.comm) == ncclSuccess);
      enqueued = true;
      RANK_EXPECT(cudaStreamSynchronize(me.stream) == cudaErrorIllegalAddress);
      RANK_EXPECT(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream) != ncclSuccess);
      if (!blocking) Poll(me.comm);
      ncclResult_t result = ncclCommFinalize(me.comm);
      if (result == ncclInProgress) result = Poll(me.comm);
      RANK_EXPECT(result == ncclUnhandledCudaError);
      RANK_EXPECT(ncclCommDestroy(me.comm) == ncclUnhandledCudaError);
      return 0;
    });
    EXPECT_EQ(results[0].status, 0);
  }
}

TEST(Lifecycle, ASplitOfABrokenCommunicatorFails) {
  const ncclUniqueId id = NewId();
  Death death;
  const auto results = RunRanks(3, [&](int rank) {
    Environment("20000");
    Rank me;
    if (const int bad = me.Start(3, id, rank)) return bad;
    if (rank == 2) {
      usleep(200000);
      death.Die();
    }
    ncclComm_t half = nullptr;
    RANK_EXPECT(ncclCommSplit(me.comm, 0, rank, &half, nullptr) == ncclRemoteError);  // rank 2 says nothing any more
    if (half != nullptr) NCCL_OK(ncclCommAbort(half));
    NCCL_OK(ncclCommAbort(me.comm));
    return 0;
  });
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].status, i == 2 ? -SIGKILL : 0);
}

}  // namespace
}  // namespace host_cuda::nccl
