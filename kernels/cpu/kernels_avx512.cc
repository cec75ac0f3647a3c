// The kernels compiled for one instruction set: avx512. See kernel_table.h.
#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/block_maxima_inl.h"
#include "kernels/cpu/dequant_inl.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/matmul_inl.h"
#include "kernels/cpu/norm_inl.h"
#include "kernels/cpu/paged_kv_inl.h"
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

constinit const KvTable kAvx512Bf16Kv = {.rotate = nullptr,
                                         .write = &WriteKv<Simd, Bf16Elements>,
                                         .attention = &AttendPages<Simd, Bf16Elements>,
                                         .merge = &MergeStates<Simd>};

constinit const KvTable kAvx512Int8Kv = {.rotate = &Rotate<Simd>,
                                         .write = &WriteKv<Simd, Int8Elements>,
                                         .attention = &AttendPages<Simd, Int8Elements>,
                                         .merge = &MergeStates<Simd>};

}  // namespace sluice::kernels::cpu
