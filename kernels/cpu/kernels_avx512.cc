// The kernels compiled for one instruction set: avx512. See kernel_table.h.
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/bf16_kv_inl.h"
#include "kernels/cpu/block_maxima_inl.h"
#include "kernels/cpu/dequant_inl.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/matmul_inl.h"
#include "kernels/cpu/norm_inl.h"
#include "kernels/cpu/rope_inl.h"
#include "kernels/cpu/vec_avx512.h"

namespace sluice::kernels::cpu {

using avx512::Simd;

constinit const KernelTable kAvx512Kernels = {
    .matmul = &Matmul<Simd>,
    .rms_norm = &RmsNorm<Simd>,
    .rope = &Rope<Simd>,
    .attention = &Attention<Simd>,
    .silu_mul = &ActMul<Simd, Silu<Simd>>,
    .gelu_tanh_mul = &ActMul<Simd, GeluTanh<Simd>>,
    .block_maxima = &BlockMaxima<Simd>,
    .exp = &ExpArray<Simd>,
    .dequantize = &Dequantize<Simd>,
};

constinit const Bf16KvTable kAvx512Bf16Kv = {
    .write = &WriteBf16<Simd>, .attention = &Bf16Attention<Simd>, .merge = &MergeStates<Simd>};

}  // namespace sluice::kernels::cpu
