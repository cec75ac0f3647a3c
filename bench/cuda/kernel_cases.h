// What kernel_bench measures: a kernel at a shape, what it has to move and to compute, and how to launch it. The names
// of kernels and shapes are what tests/gpu finds their anchors by (anchors.py).
//
// A case is made when its turn comes and holds its memory until the next one is made. Data come in copies, which
// launches take in turns, so that what fits an L2 cache does not stay there.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::bench {

using Launch = std::function<cudaError_t(int i, cudaStream_t stream)>;  // i: of this launch; owns what it uses

struct KernelCase {
  std::string kernel, shape;
  double bytes = 0, flops = 0;  // of one launch, at least
  std::function<absl::StatusOr<Launch>()> make;
};

// tiny: for the test runtime, which shows that it runs.
std::vector<KernelCase> AttentionCases(bool tiny);
std::vector<KernelCase> ProductCases(bool tiny);
std::vector<KernelCase> RowCases(bool tiny);  // and the copy of memory that bounds them

}  // namespace sluice::bench
