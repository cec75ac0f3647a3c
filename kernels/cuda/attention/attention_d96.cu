#include "kernels/cuda/attention/attention_launch.cuh"

namespace sluice::kernels::cuda {

template cudaError_t LaunchAttention<96>(const AttentionLaunch&, cudaStream_t);

}  // namespace sluice::kernels::cuda
