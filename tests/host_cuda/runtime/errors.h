// CUDA's error codes as names and texts, and which of them stick to a context.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

namespace host_cuda::rt {

const char* ErrorName(cudaError_t code);
const char* ErrorText(cudaError_t code);
std::optional<cudaError_t> ErrorNamed(const std::string& name);

// An error after which every later call of the process on that device fails with it.
bool Sticks(cudaError_t code);

}  // namespace host_cuda::rt
