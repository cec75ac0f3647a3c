#include "bench/machine_limits.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace sluice::bench {
namespace {

constexpr int kChains = 12;  // latency 4, at most 2 a cycle
constexpr int kRounds = 5;

// CPU time of this thread, as the benchmark library's rates use: what others take of a shared core does not count.
double Seconds(clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
  timespec t;
  clock_gettime(clock, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Both return something that depends on all the work, so that none of it can be left out.
__attribute__((target("avx512f"))) float Fma512(int64_t n) {
  __m512 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(float(i));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, y);
  }
  __m512 sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, acc[i]);
  return _mm512_cvtss_f32(sum);
}

__attribute__((target("avx2,fma"))) float Fma256(int64_t n) {
  __m256 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_ps(float(i));
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, y);
  }
  __m256 sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum = _mm256_add_ps(sum, acc[i]);
  return _mm256_cvtss_f32(sum);
}

__attribute__((target("avx512f,avx512vnni"))) int Dot512(int64_t n) {
  __m512i acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_epi32(i);  // alike they would be computed once
  const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-2);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, x, y);
  }
  __m512i sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_epi32(sum, acc[i]);
  return _mm512_cvtsi512_si32(sum);
}

__attribute__((target("avx2"))) int Dot256(int64_t n) {
  __m256i acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_epi32(i);
  const __m256i x = _mm256_set1_epi16(3);
  __m256i y = _mm256_set1_epi16(-2);
  for (int64_t i = 0; i < n; ++i) {
    asm("" : "+x"(y));  // else the product is computed once
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm256_add_epi32(a, _mm256_madd_epi16(x, y));
  }
  __m256i sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum = _mm256_add_epi32(sum, acc[i]);
  return _mm256_extract_epi32(sum, 0);
}

__attribute__((target("avx2"))) int Sum256(const std::byte* p, size_t bytes) {
  __m256i acc[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      acc[j] = _mm256_add_epi32(acc[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 32 * j)));
    }
  }
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(acc[0], acc[1]), _mm256_add_epi32(acc[2], acc[3]));
  return _mm256_extract_epi32(sum, 0);
}

volatile float float_sink;
volatile int int_sink;

}  // namespace

double FmaGflops() {
  constexpr int64_t kSteps = 4'000'000;
  const bool wide = __builtin_cpu_supports("avx512f");
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double start = Seconds();
    float_sink = wide ? Fma512(kSteps) : Fma256(kSteps);
    const double flops = 2.0 * (wide ? 16 : 8) * kChains * kSteps;
    best = std::max(best, flops / (Seconds() - start) / 1e9);
  }
  return best;
}

double Int8DotGops() {
  constexpr int64_t kSteps = 4'000'000;
  const bool wide = __builtin_cpu_supports("avx512vnni");
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double start = Seconds();
    int_sink = wide ? Dot512(kSteps) : Dot256(kSteps);
    const double ops = 2.0 * (wide ? 64 : 16) * kChains * kSteps;
    best = std::max(best, ops / (Seconds() - start) / 1e9);
  }
  return best;
}

double ReadGBs(size_t bytes, int threads) {
  struct alignas(64) Line {
    std::byte b[64];
  };
  const std::vector<Line> lines(bytes / sizeof(Line), Line{});
  const auto* p = reinterpret_cast<const std::byte*>(lines.data());
  const int64_t repeats = std::max<int64_t>(1, int64_t(2e8) / int64_t(bytes));
  const size_t part = bytes / size_t(threads) / 4096 * 4096;
  kernels::cpu::ThreadPool pool(threads);
  std::vector<int64_t> sinks(size_t(threads) * 16);  // [threads] a cache line apart or more
  const clockid_t clock = threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double start = Seconds(clock);
    for (int64_t i = 0; i < repeats; ++i) {
      pool.Run([&](int t) { sinks[size_t(t) * 16] += Sum256(p + size_t(t) * part, part); });
    }
    best = std::max(best, double(repeats) * double(part) * threads / (Seconds(clock) - start) / 1e9);
  }
  int_sink = int(sinks[0]);
  return best;
}

}  // namespace sluice::bench
