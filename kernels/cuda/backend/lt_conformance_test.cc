// The CUDA backend with cuBLASLt under the suite of every backend. Over the plugin, which finds the library by dlopen.
#include <cuda_runtime_api.h>

#include "gtest/gtest.h"
#include "kernels/conformance/conformance.h"
#include "kernels/plugin/cuda_plugin.h"

namespace sluice::kernels::conformance {
namespace {

void Copy(void* to, const void* from, size_t bytes) {
  ASSERT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
}

Variant Make(const char* name, bool graphs) {
  return {name, [graphs]() -> absl::StatusOr<std::unique_ptr<Backend>> {
            auto plugin = LoadCudaPlugin(SLUICE_CUDA_PLUGIN);
            if (!plugin.ok()) return plugin.status();
            // From few rows on, so that steps of decode rows are among those that it computes.
            return (*plugin)->new_backend({.graphs = graphs, .gemm = CudaGemm::kCublasLt, .gemm_rows = 3});
          }};
}

[[maybe_unused]] const bool registered =
    RegisterConformance({{.name = "cuda_lt",
                          .numerics_id = "cuda-bf16lt.1",
                          .variants = {Make("graphs", true), Make("launches", false)},
                          .rms_error = 0.05,    // of tiny random models, whose outputs are mostly rounding
                          .batch_error = 0.05,  // its sums are in another order than our kernels'
                          .read = Copy,
                          .write = Copy}});

}  // namespace
}  // namespace sluice::kernels::conformance
