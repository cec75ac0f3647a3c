#pragma once

#include <cuda_runtime_api.h>

inline constexpr int kStandardThreads = 128;

cudaError_t LaunchAsserts(int n);  // n < 3: it is well
