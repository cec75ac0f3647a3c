// What cuBLAS and cuBLASLt have in common here: their status codes by name, failures on purpose, compute types.
#pragma once

#include <cublas_v2.h>

#include <optional>

namespace host_cuda::blas {

// A failure on purpose (HOST_CUDA_FAIL).
std::optional<cublasStatus_t> Injected(const char* call);

const char* StatusName(cublasStatus_t status);
const char* StatusText(cublasStatus_t status);

// Sums in f32: with f32, or its faster stand-ins, which are no faster here.
bool SumsInFloat(cublasComputeType_t type);

}  // namespace host_cuda::blas
