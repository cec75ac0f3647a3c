// bf16 mode in plain C++: the definition that the other instruction sets are held against. See bf16_table.h.
#include "kernels/cpu/bf16/bf16_inl.h"
#include "kernels/cpu/vec_scalar.h"

namespace sluice::kernels::cpu {
using scalar::Simd;

constinit const Bf16Table kScalarBf16 = {
    .matmul = &MultiplyPanels<Simd, Bf16Tiles<Simd>, FloatRows, Bf16Panels>,
    .gate_up = &MultiplyGateUp<Simd, Bf16Tiles<Simd>, FloatRows, Bf16Panels>,
};

}  // namespace sluice::kernels::cpu
