#include "kvtransfer/checksum.h"

#include <cstring>

#define SLUICE_BODY static inline __attribute__((always_inline))

namespace sluice::kvtransfer {
namespace {

constexpr size_t kLanes = 8;    // words of a vector
constexpr size_t kVectors = 4;  // sums side by side: a word's mix takes longer than its share of the loop
typedef uint64_t Words __attribute__((vector_size(kLanes * sizeof(uint64_t))));

// The mixes of words [0, blocks * kLanes * kVectors).
SLUICE_BODY uint64_t SumBlocksBody(const std::byte* bytes, size_t blocks) {
  Words key[kVectors], sum[kVectors];  // key: what Mix makes of the index
  for (size_t v = 0; v < kVectors; ++v) {
    for (size_t l = 0; l < kLanes; ++l) key[v][l] = IndexKey(v * kLanes + l);
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
__attribute__((target("avx512f,avx512dq"))) uint64_t SumBlocks512(const std::byte* bytes, size_t blocks) {
  return SumBlocksBody(bytes, blocks);
}
uint64_t SumBlocks(const std::byte* bytes, size_t blocks) {
  return __builtin_cpu_supports("avx512dq") ? SumBlocks512(bytes, blocks) : SumBlocksBody(bytes, blocks);
}
#else
uint64_t SumBlocks(const std::byte* bytes, size_t blocks) {
  return SumBlocksBody(bytes, blocks);
}
#endif

}  // namespace

uint64_t Checksum(std::span<const std::byte> bytes) {
  const size_t blocks = bytes.size() / (sizeof(Words) * kVectors);
  uint64_t total = SumBlocks(bytes.data(), blocks) + Mix(bytes.size(), uint64_t{1} << 63);
  for (size_t i = blocks * kLanes * kVectors; i * 8 < bytes.size(); ++i) {
    uint64_t w = 0;
    std::memcpy(&w, bytes.data() + i * 8, bytes.size() - i * 8 < 8 ? bytes.size() - i * 8 : 8);
    total += Mix(w, i);
  }
  return total;
}

}  // namespace sluice::kvtransfer
