// The linear layers: out = a Wᵀ in bf16 with f32 sums, for any number of rows, with what follows a product fused in. W
// is bf16, or 8 bits that become bf16 in front of the tensor cores, with the bits of the product with that bf16.
//
// An output's bits depend on its rows of a and W alone. The sum over k is cut into slices by k alone (GemmSlices); each
// is summed in steps of 16 in ascending order by the tensor cores, and slices are added in ascending order. How many
// rows and columns a block computes, and whether the slices of an output are one block's or several blocks', is chosen
// by the shape of the launch and shows in no bit. So a tensor-parallel rank, whose W has fewer rows, has the bits of
// one rank.
//
// Limits: k a multiple of kGemmDepth, padded with zeros in a and in W; rows of a and W 16-byte aligned.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace sluice::kernels::cuda {

inline constexpr int kGemmDepth = 64;
inline constexpr int kMaxGemmParts = 3;

enum class GemmOutput : uint8_t {
  kBf16,       // out = sum + bias, bf16
  kF32,        // out = sum + bias, f32
  kAdd,        // out += sum, f32
  kGatedSilu,  // out = silu(sum of part 0) * (sum of part 1), bf16, at part 0's place
  kGatedGelu,  // likewise with GELU, tanh approximation
};

// A matrix of weights, and where its products go.
struct GemmPart {
  const __nv_bfloat16* w = nullptr;  // [n][k]
  const void* int8 = nullptr;        // in its place, of all parts or none: [n][k] as int8_layout.h says
  const float* bias = nullptr;       // [n] or null
  void* out = nullptr;               // [m][stride]
  int64_t stride = 0;
  int n = 0;
};

struct GemmArgs {
  const __nv_bfloat16* a = nullptr;  // [m][a_stride]
  int64_t a_stride = 0;
  int m = 0, k = 0;
  GemmPart parts[kMaxGemmParts];  // gated: two of one n
  int num_parts = 1;
  GemmOutput output = GemmOutput::kBf16;
  void* workspace = nullptr;  // for blocks that share an output; without it, or where it is too small, none do
  size_t workspace_bytes = 0;
};

struct GemmSlicing {
  int slices, length;  // the last slice may be shorter
};
GemmSlicing GemmSlices(int k);

// cudaErrorInvalidValue for a shape that is not supported. No rows: nothing is launched.
cudaError_t Gemm(const GemmArgs& args, cudaStream_t stream);
bool IsGemm(const GemmArgs& args);  // whether it is supported

// What follows the products of all parts (bias, gate, rounding), where another has left their sums in the workspace,
// f32 [m][columns of all parts].
cudaError_t FinishProducts(const GemmArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
