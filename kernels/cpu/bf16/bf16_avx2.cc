// bf16 mode with AVX2. See bf16_table.h.
#include "kernels/cpu/bf16/bf16_inl.h"
#include "kernels/cpu/vec_avx2.h"

namespace sluice::kernels::cpu {
using avx2::Simd;

constinit const Bf16Table kAvx2Bf16 = {
    .matmul = &MultiplyPanels<Simd, Bf16Tiles<Simd>, FloatRows, Bf16Panels>,
    .gate_up = &MultiplyGateUp<Simd, Bf16Tiles<Simd>, FloatRows, Bf16Panels>,
};

}  // namespace sluice::kernels::cpu
