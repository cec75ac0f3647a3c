// The activations of a gated MLP, in f32.
#pragma once

namespace sluice::kernels::cuda {

__device__ inline float Silu(float x) {
  return __fdividef(x, __fadd_rn(1.0f, __expf(-x)));
}

// GELU by tanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), where 0.5 (1 + tanh u) = 1 / (1 + exp(-2 u)).
__device__ inline float GeluTanh(float x) {
  const float u = __fmul_rn(1.5957691216f, __fmaf_rn(__fmul_rn(__fmul_rn(0.044715f, x), x), x, x));
  return __fdividef(x, __fadd_rn(1.0f, __expf(-u)));
}

}  // namespace sluice::kernels::cuda
