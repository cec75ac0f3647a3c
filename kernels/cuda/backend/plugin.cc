// What backend_cuda.so shows (kernels/plugin/cuda_plugin.h).
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/plugin/cuda_plugin.h"

namespace {

using sluice::kernels::CudaPlugin;

constexpr CudaPlugin kPlugin = {
    .build = sluice::kernels::kCudaPluginBuild, .new_backend = [](const sluice::kernels::CudaPluginOptions& options) {
      return sluice::kernels::cuda::NewCudaBackend({.device = options.device,
                                                    .graphs = options.graphs,
                                                    .kv = options.kv,
                                                    .nccl_library = options.nccl_library,
                                                    .rank_timeout = absl::Seconds(options.rank_timeout_seconds),
                                                    .weights = options.weights,
                                                    .gemm = options.gemm,
                                                    .gemm_rows = options.gemm_rows,
                                                    .cublaslt_library = options.cublaslt_library});
    }};

}  // namespace

extern "C" __attribute__((visibility("default"))) const CudaPlugin* sluice_cuda_plugin() {
  return &kPlugin;
}
