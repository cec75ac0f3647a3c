// The rotary position embedding's angles as a table: one row per position, the cosines of all pairs, then their sines.
//
// Promise: computed in double by deterministic_math.h and rounded once to f32, so every machine has the same table.
#pragma once

#include <span>
#include <vector>

namespace sluice::engine {

// [positions][rotary_dim]. Pair i turns by position * theta^(-2i / rotary_dim) / factors[i]; no factors: 1.
// REQUIRES: rotary_dim is even; factors is empty or [rotary_dim / 2]; positions < 2^20.
std::vector<float> MakeRopeTable(int positions, int rotary_dim, double theta, std::span<const float> factors);

}  // namespace sluice::engine
