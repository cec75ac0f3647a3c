// What one thread of this machine can do right now: the limits that kernel benchmarks are given as shares of. Shared
// machines differ by a factor between minutes, so they are measured in the same run.
#pragma once

#include <cstddef>

namespace sluice::bench {

// Fused multiply-adds from registers, two operations each, with the widest vectors the CPU has.
double FmaGflops();

// Multiply-adds of bytes from registers, two operations each: with AVX-512 VNNI, else by widening to 16 bits (AVX2).
double Int8DotGops();

// Reading `bytes` of memory over and over with the widest vectors, each thread its part of them.
double ReadGBs(size_t bytes, int threads = 1);

}  // namespace sluice::bench
