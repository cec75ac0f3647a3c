// Several ranks in one process: a thread a device, and one thread for all.
#include <gtest/gtest.h>

#include <thread>

#include "tests/host_cuda/nccl/testing/ranks.h"

namespace host_cuda::nccl {
namespace {

TEST(Threads, ARankAThread) {
  const auto results = RunRanks(1, [](int) {
    setenv("HOST_CUDA_DEVICES", "3", 1);
    const ncclUniqueId id = NewId();
    int bad[3] = {};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        bad[rank] = [&] {
          CUDA_OK(cudaSetDevice(rank));
          Rank me;
          if (const int wrong = me.Start(3, id, rank)) return wrong;
          float* p = Rank::Device(std::vector<float>(100, static_cast<float>(rank + 1)));
          NCCL_OK(ncclAllReduce(p, p, 100, ncclFloat32, ncclSum, me.comm, me.stream));
          RANK_EXPECT(me.Host(p, 100)[7] == 6.f);
          NCCL_OK(ncclCommDestroy(me.comm));
          return 0;
        }();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return bad[0] + bad[1] + bad[2];
  });
  EXPECT_EQ(results[0].status, 0);
}

TEST(Threads, OneThreadForAll) {
  const auto results = RunRanks(1, [](int) {
    setenv("HOST_CUDA_DEVICES", "2", 1);
    ncclComm_t comms[2];
    NCCL_OK(ncclCommInitAll(comms, 2, nullptr));
    float* p[2];
    cudaStream_t streams[2];
    for (int d = 0; d < 2; ++d) {
      CUDA_OK(cudaSetDevice(d));
      CUDA_OK(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
      p[d] = Rank::Device(std::vector<float>(10, static_cast<float>(d + 1)));
    }
    NCCL_OK(ncclGroupStart());
    for (int d = 0; d < 2; ++d) NCCL_OK(ncclAllReduce(p[d], p[d], 10, ncclFloat32, ncclProd, comms[d], streams[d]));
    NCCL_OK(ncclGroupEnd());
    for (int d = 0; d < 2; ++d) {
      float x = 0;
      CUDA_OK(cudaMemcpyAsync(&x, p[d], sizeof x, cudaMemcpyDeviceToHost, streams[d]));
      RANK_EXPECT(x == 2.f);
    }
    RANK_EXPECT(ncclAllReduce(p[0], p[0], 10, ncclFloat32, ncclSum, comms[0], streams[1]) == ncclInvalidArgument);
    for (ncclComm_t comm : comms) NCCL_OK(ncclCommFinalize(comm));
    for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
    return 0;
  });
  EXPECT_EQ(results[0].status, 0);
}

}  // namespace
}  // namespace host_cuda::nccl
