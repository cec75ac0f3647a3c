// Parts of a GPU's pool to the host and back: the bytes, and the checksum that the host would compute.
#include "kernels/cuda/backend/kv_pool.h"

#include <thread>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/testing/device_array.h"
#include "kernels/kv_checksum.h"

namespace sluice::kernels::cuda {
namespace {

constexpr KvLayout kLayout{
    .num_layers = 3, .num_kv_heads = 4, .head_dim = 64, .block_size = 16, .dtype = KvDType::kBF16};

struct Pool {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<KvPool> pool;

  explicit Pool(int blocks) {
    auto made = NewCudaBackend({});
    EXPECT_TRUE(made.ok()) << made.status();
    backend = *std::move(made);
    auto kv = backend->NewKvPool(kLayout, blocks);
    EXPECT_TRUE(kv.ok()) << kv.status();
    pool = *std::move(kv);
  }
};

std::vector<std::byte> RandomBytes(size_t size) {
  std::mt19937_64 rng(size);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = std::byte(rng());
  return bytes;
}

uint64_t ChecksumOf(const std::vector<std::byte>& bytes) {
  uint64_t sum = Mix(bytes.size(), uint64_t{1} << 63);
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &bytes[at], std::min<size_t>(8, bytes.size() - at));
    sum += Mix(word, at / 8);
  }
  return sum;
}

TEST(CudaKvPool, WhatIsScatteredIsGatheredElsewhereInOtherParts) {
  SLUICE_NEEDS_DEVICE();
  const Pool from(20), to(9);
  const std::vector<int32_t> source = {17, 3, 9, 0}, target = {8, 1, 2, 5};
  const KvSlice whole{0, 3, 0, 4, source};
  const std::vector<std::byte> bytes = RandomBytes(SliceBytes(whole, kLayout));
  ASSERT_EQ(*from.pool->device()->Scatter(whole, bytes), ChecksumOf(bytes));
  for (int layer = 0; layer < 3; ++layer) {
    for (const auto& [first, end] : {std::pair(0, 1), std::pair(1, 4)}) {
      const KvSlice part{layer, layer + 1, first, end, source};
      std::vector<std::byte> wire(SliceBytes(part, kLayout));
      const auto left = from.pool->device()->Gather(part, wire);
      ASSERT_TRUE(left.ok()) << left.status();
      EXPECT_EQ(*left, ChecksumOf(wire));
      EXPECT_EQ(*to.pool->device()->Scatter({layer, layer + 1, first, end, target}, wire), *left);
    }
  }
  std::vector<std::byte> back(bytes.size());
  EXPECT_EQ(*to.pool->device()->Gather({0, 3, 0, 4, target}, back), ChecksumOf(bytes));
  EXPECT_TRUE(SameBits(back, bytes));
}

TEST(CudaKvPool, SlicesLargerThanTheScratchAndSeveralThreads) {
  SLUICE_NEEDS_DEVICE();
  const Pool pool(200);
  std::vector<std::vector<int32_t>> blocks(2);
  for (int i = 0; i < 200; ++i) blocks[size_t(i % 2)].push_back(199 - i);
  std::vector<std::thread> threads;
  for (const auto& ids : blocks) {
    threads.emplace_back([&pool, &ids] {
      const KvSlice slice{0, 3, 0, 4, ids};
      const std::vector<std::byte> bytes = RandomBytes(SliceBytes(slice, kLayout));
      std::vector<std::byte> back(bytes.size());
      ASSERT_EQ(*pool.pool->device()->Scatter(slice, bytes), ChecksumOf(bytes));
      ASSERT_EQ(*pool.pool->device()->Gather(slice, back), ChecksumOf(bytes));
      EXPECT_TRUE(SameBits(back, bytes));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CudaKvPool, CopiesABlockInEveryLayer) {
  SLUICE_NEEDS_DEVICE();
  const Pool pool(4);
  const std::vector<int32_t> one = {1}, three = {3};
  const std::vector<std::byte> bytes = RandomBytes(SliceBytes({0, 3, 0, 4, one}, kLayout));
  ASSERT_TRUE(pool.pool->device()->Scatter({0, 3, 0, 4, one}, bytes).ok());
  ASSERT_TRUE(pool.pool->CopyBlock(1, 3).ok());
  Check(cudaDeviceSynchronize());
  std::vector<std::byte> copy(bytes.size());
  ASSERT_TRUE(pool.pool->device()->Gather({0, 3, 0, 4, three}, copy).ok());
  EXPECT_TRUE(SameBits(copy, bytes));
}

}  // namespace
}  // namespace sluice::kernels::cuda
