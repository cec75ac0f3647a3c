// NCCL between processes: that the operations do what they say. The ranks are forked before CUDA is used here.
#include <gtest/gtest.h>

#include "tests/host_cuda/nccl/testing/ranks.h"

namespace host_cuda::nccl {
namespace {

// What element i of rank r is at the start.
float At(int rank, size_t i) {
  return static_cast<float>(rank * 100 + static_cast<int>(i % 7));
}

std::vector<float> Start(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = At(rank, i);
  return values;
}

int Collectives(int ranks, const ncclUniqueId& id, int rank, bool blocking) {
  constexpr size_t kN = 1003;
  Rank me;
  if (const int bad = me.Start(ranks, id, rank, blocking)) return bad;
  const auto n = static_cast<size_t>(ranks);
  float* in = Rank::Device(Start(rank, kN * n));
  float* out = Rank::Device(std::vector<float>(kN * n, -1));
  const auto done = [&](ncclResult_t result) { return result == ncclInProgress ? Poll(me.comm) : result; };

  NCCL_OK(done(ncclAllReduce(in, out, kN, ncclFloat32, ncclSum, me.comm, me.stream)));
  std::vector<float> got = me.Host(out, kN);
  for (size_t i = 0; i < kN; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += At(r, i);
    RANK_EXPECT(got[i] == sum);
  }

  NCCL_OK(done(ncclAllGather(in, out, kN, ncclFloat32, me.comm, me.stream)));
  got = me.Host(out, kN * n);
  for (size_t i = 0; i < kN * n; ++i) RANK_EXPECT(got[i] == At(static_cast<int>(i / kN), i % kN));

  NCCL_OK(done(ncclReduceScatter(in, out, kN, ncclFloat32, ncclMax, me.comm, me.stream)));
  got = me.Host(out, kN);
  for (size_t i = 0; i < kN; ++i) RANK_EXPECT(got[i] == At(ranks - 1, static_cast<size_t>(rank) * kN + i));

  const int root = ranks - 1;
  NCCL_OK(done(ncclBroadcast(in, out, kN, ncclFloat32, root, me.comm, me.stream)));
  got = me.Host(out, kN);
  for (size_t i = 0; i < kN; ++i) RANK_EXPECT(got[i] == At(root, i));

  NCCL_OK(done(ncclReduce(in, out, kN, ncclFloat32, ncclMin, root, me.comm, me.stream)));
  got = me.Host(out, kN);
  for (size_t i = 0; i < kN && rank == root; ++i) RANK_EXPECT(got[i] == At(0, i));

  // A ring, both directions in one group, several to the same peer.
  NCCL_OK(ncclGroupStart());
  for (size_t k = 0; k < 3; ++k) {
    NCCL_OK(ncclSend(in + k * 100, 100, ncclFloat32, (rank + 1) % ranks, me.comm, me.stream));
    NCCL_OK(ncclRecv(out + k * 100, 100, ncclFloat32, (rank + ranks - 1) % ranks, me.comm, me.stream));
  }
  NCCL_OK(done(ncclGroupEnd()));
  got = me.Host(out, 300);
  for (size_t i = 0; i < 300; ++i) RANK_EXPECT(got[i] == At((rank + ranks - 1) % ranks, i));

  int count = 0, user = -1;
  NCCL_OK(ncclCommCount(me.comm, &count));
  NCCL_OK(ncclCommUserRank(me.comm, &user));
  RANK_EXPECT(count == ranks && user == rank);
  NCCL_OK(done(ncclCommFinalize(me.comm)));
  NCCL_OK(ncclCommDestroy(me.comm));
  return 0;
}

void Expect(const std::vector<RankResult>& results) {
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].status, 0) << "rank " << i;
}

TEST(Collectives, OneToFourRanksBlockingAndNot) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const bool blocking : {true, false}) {
      SCOPED_TRACE(std::to_string(ranks) + (blocking ? " blocking" : " non-blocking"));
      const ncclUniqueId id = NewId();
      Expect(RunRanks(ranks, [&](int rank) { return Collectives(ranks, id, rank, blocking); }));
    }
  }
}

TEST(Collectives, AnOperationWaitsForItsStreamAndIsWaitedFor) {
  const ncclUniqueId id = NewId();
  Expect(RunRanks(2, [&](int rank) {
    Rank me;
    if (const int bad = me.Start(2, id, rank)) return bad;
    float* p = Rank::Device(std::vector<float>(100, 1));
    for (int i = 0; i < 30; ++i) {  // each doubles what the one before it left
      NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, i % 2 == 0 ? ncclSum : ncclAvg, me.comm, me.stream));
    }
    RANK_EXPECT(me.Host(p, 100)[99] == 32768.f);
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  }));
}

// Each rank has a factor of its own; the values themselves stay as they are.
TEST(Collectives, SumsOfScaledValues) {
  const ncclUniqueId id = NewId();
  Expect(RunRanks(3, [&](int rank) {
    Rank me;
    if (const int bad = me.Start(3, id, rank)) return bad;
    float factor = static_cast<float>(rank + 1);
    float* on_device = Rank::Device({factor * 10});
    ncclRedOp_t now, later;
    NCCL_OK(ncclRedOpCreatePreMulSum(&now, &factor, ncclFloat32, ncclScalarHostImmediate, me.comm));
    NCCL_OK(ncclRedOpCreatePreMulSum(&later, on_device, ncclFloat32, ncclScalarDevice, me.comm));
    factor = 1e9f;  // was taken in the call
    float* in = Rank::Device(Start(rank, 300));
    float* out = Rank::Device(std::vector<float>(300, -1));
    NCCL_OK(ncclAllReduce(in, out, 300, ncclFloat32, now, me.comm, me.stream));
    std::vector<float> got = me.Host(out, 300);
    for (size_t i = 0; i < 300; ++i) RANK_EXPECT(got[i] == At(0, i) + 2 * At(1, i) + 3 * At(2, i));
    NCCL_OK(ncclReduceScatter(in, out, 100, ncclFloat32, later, me.comm, me.stream));
    got = me.Host(out, 100);
    for (size_t i = 0; i < 100; ++i) {
      const size_t from = static_cast<size_t>(rank) * 100 + i;
      RANK_EXPECT(got[i] == 10 * At(0, from) + 20 * At(1, from) + 30 * At(2, from));
    }
    got = me.Host(in, 300);
    for (size_t i = 0; i < 300; ++i) RANK_EXPECT(got[i] == At(rank, i));
    RANK_EXPECT(ncclAllReduce(in, out, 8, ncclInt32, now, me.comm, me.stream) == ncclInvalidArgument);
    NCCL_OK(ncclRedOpDestroy(now, me.comm));
    RANK_EXPECT(ncclRedOpDestroy(now, me.comm) == ncclInvalidArgument);
    RANK_EXPECT(ncclRedOpDestroy(ncclSum, me.comm) == ncclInvalidArgument);
    RANK_EXPECT(ncclAllReduce(in, out, 8, ncclFloat32, now, me.comm, me.stream) == ncclInvalidArgument);
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  }));
}

TEST(Collectives, MemoryAndRegistration) {
  const ncclUniqueId id = NewId();
  Expect(RunRanks(1, [&](int) {
    Rank me;
    if (const int bad = me.Start(1, id, 0)) return bad;
    void *p = nullptr, *registration = nullptr;
    NCCL_OK(ncclMemAlloc(&p, 4096));
    cudaPointerAttributes about;
    CUDA_OK(cudaPointerGetAttributes(&about, p));
    RANK_EXPECT(about.type == cudaMemoryTypeDevice);
    NCCL_OK(ncclCommRegister(me.comm, p, 4096, &registration));
    NCCL_OK(ncclCommDeregister(me.comm, registration));
    NCCL_OK(ncclMemFree(p));
    RANK_EXPECT(ncclCommRegister(nullptr, p, 4096, &registration) == ncclInvalidArgument);
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  }));
}

TEST(Collectives, InAGraph) {
  const ncclUniqueId id = NewId();
  Expect(RunRanks(2, [&](int rank) {
    Rank me;
    if (const int bad = me.Start(2, id, rank)) return bad;
    float* p = Rank::Device(std::vector<float>(100, 1));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CUDA_OK(cudaStreamBeginCapture(me.stream, cudaStreamCaptureModeThreadLocal));
    NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream));
    NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream));
    CUDA_OK(cudaStreamEndCapture(me.stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; ++i) CUDA_OK(cudaGraphLaunch(exec, me.stream));
    RANK_EXPECT(me.Host(p, 100)[50] == 64.f);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  }));
}

TEST(Collectives, Split) {
  const ncclUniqueId id = NewId();
  Expect(RunRanks(4, [&](int rank) {
    Rank me;
    if (const int bad = me.Start(4, id, rank)) return bad;
    ncclComm_t half = nullptr;
    NCCL_OK(ncclCommSplit(me.comm, rank % 2, -rank, &half, nullptr));
    int ranks = 0, mine = -1;
    NCCL_OK(ncclCommCount(half, &ranks));
    NCCL_OK(ncclCommUserRank(half, &mine));
    RANK_EXPECT(ranks == 2 && mine == (rank < 2 ? 1 : 0));  // the larger key first
    float* p = Rank::Device(std::vector<float>(10, static_cast<float>(rank)));
    NCCL_OK(ncclAllReduce(p, p, 10, ncclFloat32, ncclSum, half, me.stream));
    RANK_EXPECT(me.Host(p, 10)[9] == (rank % 2 == 0 ? 2.f : 4.f));
    ncclComm_t none = nullptr;
    NCCL_OK(ncclCommSplit(me.comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 1, 0, &none, nullptr));
    RANK_EXPECT((none == nullptr) == (rank == 0));
    if (none != nullptr) NCCL_OK(ncclCommDestroy(none));
    NCCL_OK(ncclCommDestroy(half));
    NCCL_OK(ncclCommDestroy(me.comm));
    return 0;
  }));
}

}  // namespace
}  // namespace host_cuda::nccl
