// The sample plugin's kernels, as host functions that launch them.
#pragma once

#include <cuda_runtime_api.h>

namespace host_cuda::sample {

// out[i] = factor * in[i] + term; in may be out.
cudaError_t ScaleAndAdd(float* out, const float* in, float factor, float term, int count, cudaStream_t stream);

// sum[i] += in[i]
cudaError_t Accumulate(float* sum, const float* in, int count, cudaStream_t stream);

}  // namespace host_cuda::sample
