#include "kvtransfer/checksum.h"

#include <cstring>

#define SLUICE_BODY static inline __attribute__((always_inline))

namespace sluice::kvtransfer {
namespace {

constexpr size_t kLanes = 8;    // words of a vector
constexpr size_t kVectors = 4;  // sums side by side: a word's mix takes longer than its share of the loop
typedef uint64_t Words __attribute__((vector_size(kLanes * sizeof(uint64_t))));
constexpr size_t kBlockBytes = sizeof(Words) * kVectors;

// The mixes of `blocks` runs of kVectors vectors, which begin at word `first`.
SLUICE_BODY uint64_t SumBlocksBody(const std::byte* bytes, size_t blocks, uint64_t first) {
  Words key[kVectors], sum[kVectors];  // key: what Mix makes of the index
  for (size_t v = 0; v < kVectors; ++v) {
    for (size_t l = 0; l < kLanes; ++l) key[v][l] = IndexKey(first + v * kLanes + l);
    sum[v] = Words{};
  }
  for (size_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      Words w;
      std::memcpy(&w, bytes, sizeof w);
      bytes += sizeof w;
      w = (w ^ key[v]) * kMixA;
      w = (w ^ (w >> 32)) * kMixB;
      sum[v] += w ^ (w >> 29);
      key[v] += kIndexStep * (kLanes * kVectors);
    }
  }
  uint64_t total = 0;
  for (const Words& s : sum) {
    for (size_t l = 0; l < kLanes; ++l) total += s[l];
  }
  return total;
}

// 64-bit products are one instruction with AVX-512 and several without (AVX2 gains nothing); the sum is the same.
#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq"))) uint64_t SumBlocks512(const std::byte* bytes, size_t blocks,
                                                                  uint64_t first) {
  return SumBlocksBody(bytes, blocks, first);
}
uint64_t SumBlocks(const std::byte* bytes, size_t blocks, uint64_t first) {
  return __builtin_cpu_supports("avx512dq") ? SumBlocks512(bytes, blocks, first) : SumBlocksBody(bytes, blocks, first);
}
#else
uint64_t SumBlocks(const std::byte* bytes, size_t blocks, uint64_t first) {
  return SumBlocksBody(bytes, blocks, first);
}
#endif

}  // namespace

void RunningChecksum::Cover(size_t end) {
  const size_t blocks = (end - summed_) / kBlockBytes;
  total_ += SumBlocks(bytes_.data() + summed_, blocks, summed_ / 8);
  summed_ += blocks * kBlockBytes;
}

uint64_t RunningChecksum::Finish() {
  Cover(bytes_.size());
  uint64_t total = total_ + Mix(bytes_.size(), uint64_t{1} << 63);
  for (size_t at = summed_; at < bytes_.size(); at += 8) {
    uint64_t w = 0;
    std::memcpy(&w, bytes_.data() + at, bytes_.size() - at < 8 ? bytes_.size() - at : 8);
    total += Mix(w, at / 8);
  }
  return total;
}

uint64_t Checksum(std::span<const std::byte> bytes) {
  return RunningChecksum(bytes).Finish();
}

}  // namespace sluice::kvtransfer
