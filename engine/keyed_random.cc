#include "engine/keyed_random.h"

#include "kernels/philox.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::engine {
namespace {

#if defined(__x86_64__)
// (bits >> 12, as a double, plus a half) * 2^-52; the integer is put into the mantissa of 2^52, which is exact.
__attribute__((target("avx2"))) inline __m256d ToUniformAvx2(__m256i low, __m256i high) {
  const __m256i bits = _mm256_or_si256(_mm256_slli_epi64(high, 32), low);
  const __m256i mantissa = _mm256_or_si256(_mm256_srli_epi64(bits, 12), _mm256_set1_epi64x(0x4330000000000000));
  const __m256d integer = _mm256_sub_pd(_mm256_castsi256_pd(mantissa), _mm256_set1_pd(0x1p52));
  return _mm256_mul_pd(_mm256_add_pd(integer, _mm256_set1_pd(0.5)), _mm256_set1_pd(0x1p-52));
}

// Four blocks, so eight numbers, at a time; each word of a counter in the low half of a 64-bit lane. Returns how many
// numbers are done.
__attribute__((target("avx2"))) size_t FillUniformAvx2(const RandomKey& key, uint32_t first, std::span<double> out) {
  const __m256i low_half = _mm256_set1_epi64x(0xFFFFFFFF);
  const __m256i m0 = _mm256_set1_epi64x(kernels::kPhiloxMultiplier0),
                m1 = _mm256_set1_epi64x(kernels::kPhiloxMultiplier1);
  size_t done = 0;
  for (; done + 8 <= out.size(); done += 8) {
    const uint32_t block = (first + uint32_t(done)) / 2;
    __m256i c0 = _mm256_set_epi64x(uint32_t(block + 3), uint32_t(block + 2), uint32_t(block + 1), block);
    __m256i c1 = _mm256_set1_epi64x(key.position), c2 = _mm256_set1_epi64x(key.choice);
    __m256i c3 = _mm256_set1_epi64x(uint32_t(key.purpose));
    uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
    for (int round = 0; round < kernels::kPhiloxRounds;
         ++round, k0 += kernels::kPhiloxWeyl0, k1 += kernels::kPhiloxWeyl1) {
      const __m256i p0 = _mm256_mul_epu32(m0, c0), p1 = _mm256_mul_epu32(m1, c2);
      c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(k0));
      c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(k1));
      c1 = _mm256_and_si256(p1, low_half);
      c3 = _mm256_and_si256(p0, low_half);
    }
    const __m256d even = ToUniformAvx2(c0, c1), odd = ToUniformAvx2(c2, c3);
    const __m256d low = _mm256_unpacklo_pd(even, odd), high = _mm256_unpackhi_pd(even, odd);
    _mm256_storeu_pd(&out[done], _mm256_permute2f128_pd(low, high, 0x20));
    _mm256_storeu_pd(&out[done + 4], _mm256_permute2f128_pd(low, high, 0x31));
  }
  return done;
}
#endif

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  const kernels::PhiloxBlock block =
      kernels::Philox({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

KeyedUniform::KeyedUniform(const RandomKey& key)
    : counter_{0, key.position, key.choice, uint32_t(key.purpose)},
      key_{uint32_t(key.seed), uint32_t(key.seed >> 32)},
      block_(Philox4x32(counter_, key_)) {}

double KeyedUniform::operator()(uint32_t index) {
  if (counter_[0] != index / 2) {
    counter_[0] = index / 2;
    block_ = Philox4x32(counter_, key_);
  }
  const int half = int(index & 1) * 2;
  return kernels::PhiloxUniform(block_[half], block_[half + 1]);
}

void FillUniform(const RandomKey& key, uint32_t first, std::span<double> out) {
  size_t done = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) done = FillUniformAvx2(key, first, out);
#endif
  KeyedUniform uniform(key);
  for (; done < out.size(); ++done) out[done] = uniform(first + uint32_t(done));
}

}  // namespace sluice::engine
