// The bugs of planted.cu.
#pragma once

#include <cuda_runtime_api.h>

enum Bug {
  kNone,
  kNoBarrier,
  kEarlyExit,
  kHalfWarp,
  kSharedOverrun,
  kGlobalOverrun,
  kUninitialised,
  kNoWait,
  kNoBarrierAfterRead,
  kFragment,
  kNoFence,
};

// BlockSum without a bug: a sum of each 96 numbers.
cudaError_t LaunchBlockSum(const float* in, float* out, int blocks, cudaStream_t stream);
