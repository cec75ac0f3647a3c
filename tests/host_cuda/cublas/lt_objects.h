// What lies in cuBLASLt's opaque structs, so that those on a caller's stack work as well, and their attributes by
// number.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>

namespace host_cuda::blas {

struct Layout {
  cudaDataType type;
  int32_t order, batches;
  uint64_t rows, columns;
  int64_t ld, stride;
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t bias_type;  // a cudaDataType, if set; else kBiasAsD
  int32_t pointer_mode, a_operation, b_operation;
  uint32_t epilogue;
  int32_t sm_count_target;  // kept, not obeyed
  int32_t a_scale_mode, b_scale_mode;
  int8_t fast_accum;  // kept, not obeyed
  const void* bias;
  const void *a_scale, *b_scale;
};
inline constexpr int32_t kBiasAsD = -1;

// Of them only the workspace and the alignments mean something here; the rest is kept.
struct Preference {
  uint32_t search_mode, reduction_mask;
  uint64_t max_workspace;
  uint32_t alignment[4];  // of A, B, C, D, in bytes
  float max_waves;
  uint64_t implementation_mask;
};

template <class T, class Opaque>
T Read(const Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof *opaque);
  T value;
  std::memcpy(&value, opaque->data, sizeof value);
  return value;
}

template <class T, class Opaque>
void Write(const T& value, Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof *opaque);
  std::memcpy(opaque->data, &value, sizeof value);
}

Layout FreshLayout(cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld);
Description FreshDescription(cublasComputeType_t compute, cudaDataType scale);
Preference FreshPreference();

}  // namespace host_cuda::blas
