// CUDA's errors as Status: what was done, CUDA's name for what went wrong, and what an operator can do about it.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace sluice::kernels::cuda {

// OK for cudaSuccess. Memory that ran out is RESOURCE_EXHAUSTED, a missing or unfit device or driver
// FAILED_PRECONDITION, and everything else INTERNAL: then the device's context is lost, and so is the process's use of
// it.
absl::Status ToStatus(cudaError_t error, std::string_view doing);

}  // namespace sluice::kernels::cuda
