// What the modes with packed matrices share: a matrix is panels of sixteen rows, whose products are the lanes of a
// vector, and threads share out panels.
//
// Only plain structs here, as in kernel_table.h.
#pragma once

#include <cstdint>

namespace sluice::kernels::cpu {

inline constexpr int kPanelRows = 16;

struct ProductOutput {
  float* y;  // [rows][ld]
  int64_t ld;
  const float* bias;  // [n] or null
  bool accumulate;    // y += instead of y =
};

enum class GateFunction : uint8_t { kSilu, kGeluTanh };

}  // namespace sluice::kernels::cpu
