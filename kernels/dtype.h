// Storage types of tensors: plain floats and the GGUF block formats, with the sizes of their blocks.
//
// Promise: everything that depends on a type's memory layout asks here, so that a new type is one row in dtype.cc plus
// its dequantisation (dequant.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace sluice::kernels {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

inline constexpr int kNumDTypes = 11;

struct DTypeInfo {
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  int block_elements;     // elements that share one block; rows are whole numbers of blocks
  int block_bytes;
};

const DTypeInfo& Info(DType type);
std::optional<DType> DTypeFromName(std::string_view name);

// Bytes of one row of `cols` elements. REQUIRES: cols is a multiple of block_elements.
size_t RowBytes(DType type, int64_t cols);

// A tensor as it lies in host memory, row-major: data is [rows][cols] in `type`. A vector has rows == 1.
// Does not own: the bytes (usually a mapped file) must outlive every use.
struct HostTensor {
  DType type = DType::kF32;
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

// INVALID_ARGUMENT when the tensor holds nothing or its rows are not whole blocks.
absl::Status CheckTensor(const HostTensor& tensor);

}  // namespace sluice::kernels
