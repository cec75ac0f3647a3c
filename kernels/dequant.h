// Dequantisation of every storage type to f32: the plain scalar definition that every faster kernel is held against.
//
// Promise: bit-exact with the PyPI package `gguf` (gguf.quants.dequantize), whose results the tests carry as golden
// values. Block formats: notes in docs/architecture.md, "Model files".
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace sluice::kernels {

// out is [cols]; row points at the first block of one row of `cols` elements.
void DequantizeRow(DType type, const void* row, int64_t cols, float* out);

float F16ToF32(uint16_t bits);
float BF16ToF32(uint16_t bits);
uint16_t F32ToF16(float value);   // round to nearest even
uint16_t F32ToBF16(float value);  // round to nearest even; NaN stays NaN

}  // namespace sluice::kernels
