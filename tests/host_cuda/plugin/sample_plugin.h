// The C interface of the sample plugin: what a backend that is loaded with dlopen does, in small. It has kernels of its
// own, cudart inside, and opens cuBLASLt and NCCL by name when it runs.
#pragma once

#include <cstddef>

extern "C" {

// How many devices there are, at most 2; -1: none can be used, `why` says it in one line.
using SampleDevices = int(char* why, size_t bytes);

// On each device: y = 2 x + 1 by a kernel, z = 3 y by cuBLASLt, the sum of all devices' z by NCCL, result += that sum
// by a kernel; captured once, replayed. x[i] = i + device. Copies device 0's kSampleCount results to `result`. 0: done;
// else `why`.
constexpr int kSampleCount = 24;
using SampleRun = int(int replays, float* result, char* why, size_t bytes);

// result[i] += 1 by a kernel on a caller's stream (a cudaStream_t) and device memory.
using SampleAddOne = int(float* result, int count, void* stream);
}
