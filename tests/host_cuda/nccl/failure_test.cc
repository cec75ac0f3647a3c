// Faults of NCCL programs, planted: each must be named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/host_cuda/nccl/testing/ranks.h"

namespace host_cuda::nccl {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(Faults, ACountMismatchNamesBothRanks) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(2, [&](int rank) {
    Environment("20000");
    Rank me;
    if (const int bad = me.Start(2, id, rank)) return bad;
    float* p = Rank::Device(std::vector<float>(200, 1));
    NCCL_OK(rank == 0 ? ncclSend(p, 101, ncclFloat32, 1, me.comm, me.stream)
                      : ncclRecv(p, 100, ncclFloat32, 0, me.comm, me.stream));
    RANK_EXPECT(ErrorOf(me.comm) == ncclInvalidUsage);
    NCCL_OK(ncclCommAbort(me.comm));
    CUDA_OK(cudaStreamSynchronize(me.stream));
    return 0;
  });
  for (const RankResult& result : results) {
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.output,
                HasSubstr("rank 0 sends ncclSend/ncclRecv of 101 float32, rank 1 receives ncclSend/ncclRecv of "
                          "100 float32"));
  }
}

TEST(Faults, DifferentCollectivesAreNamed) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(2, [&](int rank) {
    Environment("20000");
    Rank me;
    if (const int bad = me.Start(2, id, rank)) return bad;
    float* p = Rank::Device(std::vector<float>(200, 1));
    NCCL_OK(rank == 0 ? ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream)
                      : ncclAllReduce(p, p, 100, ncclBfloat16, ncclSum, me.comm, me.stream));
    RANK_EXPECT(ErrorOf(me.comm) == ncclInvalidUsage);
    NCCL_OK(ncclCommAbort(me.comm));
    return 0;
  });
  for (const RankResult& result : results) {
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr("ncclAllReduce of 100 float32 (sum)"));
    EXPECT_THAT(result.output, HasSubstr("ncclAllReduce of 100 bfloat16 (sum)"));
  }
}

TEST(Faults, AMismatchEndsTheProcessByDefault) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(
      2,
      [&](int rank) {
        Rank me;
        if (const int bad = me.Start(2, id, rank)) return bad;
        float* p = Rank::Device(std::vector<float>(200, 1));
        NCCL_OK(ncclAllReduce(p, p, rank == 0 ? 100u : 99u, ncclFloat32, ncclSum, me.comm, me.stream));
        ErrorOf(me.comm);
        return 0;
      },
      20);
  for (const RankResult& result : results) {
    EXPECT_THAT(result.output, HasSubstr("of 99 float32 (sum)"));  // the other one was told
  }
  EXPECT_TRUE(results[0].status == -SIGABRT || results[1].status == -SIGABRT);
}

TEST(Faults, UngroupedCrossingSendsHangAndAreReportedWithWhatThePeerDoes) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(2, [&](int rank) {
    Environment("300");
    Rank me;
    if (const int bad = me.Start(2, id, rank)) return bad;
    float* p = Rank::Device(std::vector<float>(200, 1));
    NCCL_OK(ncclSend(p, 10, ncclFloat32, 1 - rank, me.comm, me.stream));
    NCCL_OK(ncclRecv(p + 10, 10, ncclFloat32, 1 - rank, me.comm, me.stream));
    const ncclResult_t state = ErrorOf(me.comm, 1500);  // none, unless the peer aborted a little earlier
    RANK_EXPECT(state == ncclSuccess || state == ncclRemoteError);
    RANK_EXPECT(cudaStreamQuery(me.stream) == cudaErrorNotReady);
    NCCL_OK(ncclCommAbort(me.comm));
    CUDA_OK(cudaStreamSynchronize(me.stream));
    return 0;
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string peer = std::to_string(1 - rank), own = std::to_string(rank);
    EXPECT_EQ(results[static_cast<size_t>(rank)].status, 0);
    EXPECT_THAT(results[static_cast<size_t>(rank)].output,
                AllOf(HasSubstr("has waited 300 ms in its operation 1: ncclSend of 10 float32 to rank " + peer),
                      HasSubstr("rank " + peer + " is in its operation 1: ncclSend of 10 float32 to rank " + own)));
  }
}

TEST(Faults, APeersDeathIsAnAsyncErrorAndAbortFreesTheStream) {
  const ncclUniqueId id = NewId();
  Death death;
  const auto results = RunRanks(2, [&](int rank) {
    Environment("20000");
    Rank me;
    if (const int bad = me.Start(2, id, rank, /*blocking=*/false)) return bad;
    if (rank == 1) {
      usleep(300000);  // rank 0 is through its start, and in its operation
      death.Die();
    }
    float* p = Rank::Device(std::vector<float>(200, 1));
    ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream);
    RANK_EXPECT(ErrorOf(me.comm) == ncclRemoteError);
    std::fprintf(stderr, "an error %.4f s after the peer's death\n", death.SecondsSince());
    RANK_EXPECT(death.SecondsSince() < 1);
    const std::string of_comm = ncclGetLastError(me.comm), of_any = ncclGetLastError(nullptr);
    RANK_EXPECT(of_comm.find("rank 0 of 2 on communicator") == 0);
    RANK_EXPECT(of_comm.find("rank 1 is gone") != std::string::npos);
    RANK_EXPECT(of_any == of_comm);
    NCCL_OK(ncclCommAbort(me.comm));
    CUDA_OK(cudaStreamSynchronize(me.stream));
    RANK_EXPECT(death.SecondsSince() < 1);
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_EQ(results[1].status, -SIGKILL);
  EXPECT_THAT(results[0].output, HasSubstr("rank 1 is gone"));
}

// Each rank uses both communicators in an order of its own, on two streams, so that nothing but the order is wrong.
TEST(Faults, OppositeLaunchOrdersOfTwoCommunicatorsAreReported) {
  const ncclUniqueId first = NewId(), second = NewId();
  const auto results = RunRanks(2, [&](int rank) {
    Environment("20000");
    Rank a, b;
    if (const int bad = a.Start(2, first, rank)) return bad;
    if (const int bad = b.Start(2, second, rank)) return bad;
    float* p = Rank::Device(std::vector<float>(100, 1));
    float* q = Rank::Device(std::vector<float>(100, 1));
    Rank& earlier = rank == 0 ? a : b;
    Rank& later = rank == 0 ? b : a;
    NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, earlier.comm, earlier.stream));
    usleep(20000);
    ncclAllReduce(q, q, 100, ncclFloat32, ncclSum, later.comm, later.stream);
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 5000 && state == ncclSuccess; ++i) {
      state = ErrorOf(a.comm, 1);
      if (state == ncclSuccess) state = ErrorOf(b.comm, 1);
    }
    RANK_EXPECT(state == ncclInvalidUsage || state == ncclRemoteError);  // the second: the peer saw it first and left
    NCCL_OK(ncclCommAbort(a.comm));
    NCCL_OK(ncclCommAbort(b.comm));
    CUDA_OK(cudaDeviceSynchronize());
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
  EXPECT_THAT(results[0].output + results[1].output, HasSubstr("two communicators of one device in opposite orders"));
}

TEST(Faults, AStallDelaysOneOperation) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(2, [&](int rank) {
    setenv("HOST_CUDA_NCCL_STALL", "1:2:400", 1);
    Environment("100");
    Rank me;
    if (const int bad = me.Start(2, id, rank)) return bad;
    float* p = Rank::Device(std::vector<float>(100, 1));
    for (int i = 0; i < 3; ++i) NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream));
    RANK_EXPECT(me.Host(p, 100)[0] == 8.f);
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("has waited 100 ms in its operation 2: ncclAllReduce"));
}

// No error comes of it, as of the real one: the caller's own deadline has to find it.
TEST(Faults, AStallThatNeverEndsIsTheCallersToFind) {
  const ncclUniqueId id = NewId();
  int given_up[2];
  ASSERT_EQ(pipe(given_up), 0);
  const auto results = RunRanks(2, [&](int rank) {
    setenv("HOST_CUDA_NCCL_STALL", "1:1:100000000", 1);
    Environment("100");
    Rank me;
    if (const int bad = me.Start(2, id, rank, /*blocking=*/false)) return bad;
    float* p = Rank::Device(std::vector<float>(100, 1));
    ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream);
    NCCL_OK(Poll(me.comm));
    char byte = 0;
    if (rank == 1) {
      RANK_EXPECT(read(given_up[0], &byte, 1) == 1);
      RANK_EXPECT(ErrorOf(me.comm) == ncclRemoteError);
    } else {
      cudaEvent_t done = nullptr;
      CUDA_OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
      CUDA_OK(cudaEventRecord(done, me.stream));
      const auto begun = std::chrono::steady_clock::now();
      while (cudaEventQuery(done) == cudaErrorNotReady && SecondsSince(begun) < 0.5) usleep(1000);
      RANK_EXPECT(cudaEventQuery(done) == cudaErrorNotReady);
      ncclResult_t state = ncclInternalError;
      NCCL_OK(ncclCommGetAsyncError(me.comm, &state));
      RANK_EXPECT(state == ncclSuccess);
      RANK_EXPECT(std::string(ncclGetLastError(me.comm)).find("rank 1 is in none of its operations") !=
                  std::string::npos);
      RANK_EXPECT(write(given_up[1], &byte, 1) == 1);
    }
    NCCL_OK(ncclCommAbort(me.comm));
    CUDA_OK(cudaStreamSynchronize(me.stream));
    return 0;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("has waited 100 ms in its operation 1: ncclAllReduce of 100 float32 (sum); "
                                           "rank 1 is in none of its operations"));
}

TEST(Faults, ACallBeforeTheLastOneIsDoneIsRefused) {
  const ncclUniqueId id = NewId();
  int seen[2];
  ASSERT_EQ(pipe(seen), 0);
  const auto results = RunRanks(2, [&](int rank) {
    Environment("20000");
    ncclComm_t comm = nullptr;
    char byte = 0;
    if (rank == 1) RANK_EXPECT(read(seen[0], &byte, 1) == 1);  // not before rank 0 was refused
    RANK_EXPECT(BeginNonBlocking(&comm, 2, id, rank) == ncclInProgress);
    float* p = Rank::Device(std::vector<float>(100, 1));
    if (rank == 0) {
      RANK_EXPECT(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidArgument);
      RANK_EXPECT(write(seen[1], &byte, 1) == 1);
    }
    NCCL_OK(Poll(comm));
    NCCL_OK(ncclCommDestroy(comm));
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("before its last operation returned ncclSuccess"));
}

TEST(Faults, ARankThatNeverComesIsReportedAndAbortGivesUp) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(1, [&](int) {
    Environment("100");
    ncclComm_t comm = nullptr;
    RANK_EXPECT(BeginNonBlocking(&comm, 2, id, 1) == ncclInProgress);
    usleep(400000);
    ncclResult_t state = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    RANK_EXPECT(state == ncclInProgress);
    NCCL_OK(ncclCommAbort(comm));
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("waits for rank 0 to come"));
}

TEST(Faults, AFailureOnPurpose) {
  const ncclUniqueId id = NewId();
  const auto results = RunRanks(1, [&](int) {
    setenv("HOST_CUDA_FAIL", "ncclAllReduce:2=ncclSystemError", 1);
    Rank me;
    if (const int bad = me.Start(1, id, 0)) return bad;
    float* p = Rank::Device(std::vector<float>(100, 1));
    NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream));
    RANK_EXPECT(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream) == ncclSystemError);
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
}

}  // namespace
}  // namespace host_cuda::nccl
