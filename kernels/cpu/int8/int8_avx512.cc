// int8 mode with AVX-512 VNNI. See int8_table.h.
#include "kernels/cpu/int8/dot_vnni.h"
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/matmul_inl.h"
#include "kernels/cpu/int8/rotation_inl.h"
#include "kernels/cpu/int8/round_inl.h"
#include "kernels/cpu/vec_avx512.h"

namespace sluice::kernels::cpu {
using avx512::Simd;

constinit const Int8Table kAvx512Int8 = {
    .rotate = &Rotate<Simd>,
    .round = &RoundRow<Simd>,
    .matmul = &Int8Matmul<Simd, Vnni>,
    .gate_up = &Int8GateUp<Simd, Vnni>,
};

}  // namespace sluice::kernels::cpu
