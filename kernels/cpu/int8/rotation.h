// The rotation that int8 mode applies to the inputs of every linear layer, so that no few channels dominate the scale
// of a row: W x = (W R) (Rᵀ x), where R spreads each channel over all others. Pure description; rotation_inl.h applies
// it.
//
// A row of `cols` floats, zero-padded to whole vectors of 16, is seen as [vectors][16]. R is the product of fixed
// arbitrary signs (without them the mean of a row would gather in one element), of a Walsh-Hadamard transform inside
// the vectors and of one transform per factor of `vectors` across them:
//   12 and 20   the Hadamard matrices of Paley's first construction over the fields of 11 and 19 elements
//   2           (1 1; 1 -1)
//   other r     the reflection I - 2/r J, orthonormal for every r, which spreads less than a Hadamard matrix would
// All entries of the Hadamard factors are +-1, so R is orthonormal up to the factor sqrt(gain): (R Rᵀ) = gain * I.
//
// Limits: where `vectors` has a large odd factor (a width of 16 * 19, say), channels spread over 16 * (the rest) only.
#pragma once

#include <cstdint>

namespace sluice::kernels::cpu {

inline constexpr int kMaxRotationStages = 24;

struct RotationStage {
  int32_t radix;
  int32_t stride;  // in vectors: elements of a transform lie that far apart
  bool hadamard;   // else the reflection
};

struct Rotation {
  int64_t vectors = 0;  // of sixteen
  int stages = 0;
  double gain = 1;
  RotationStage stage[kMaxRotationStages] = {};
};

// cols >= 1.
Rotation PlanRotation(int64_t cols);

}  // namespace sluice::kernels::cpu
