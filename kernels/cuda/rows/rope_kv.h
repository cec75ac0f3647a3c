// Rotates q and k by each row's position, and stores k and v in the row's slot of the paged pool (kv_layout.h): in
// bf16, or in int8 with a scale of each token and head, max|x| / 127, elements rounded to nearest even. No number in a
// head makes its scale no number, so that it is not lost.
//
// For int8, q and k are spread over the head first, alike, so that their products stay and no few elements of k
// dominate its scale: x becomes H S x, where S changes the sign of the elements d whose d * 0x9e3779b1 has bit 31 set,
// and H is the orthonormal Walsh-Hadamard matrix on blocks of the largest power of two that divides head_dim.
//
// Limits: head_dim <= 256 in int8.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::kernels::cuda {

struct RopeKvArgs {
  __nv_bfloat16* q = nullptr;        // in/out [rows][q_stride]: [heads][head_dim]
  const __nv_bfloat16* k = nullptr;  // [rows][kv_stride]: [kv_heads][head_dim], not rotated yet
  const __nv_bfloat16* v = nullptr;  // [rows][kv_stride]
  int64_t q_stride = 0, kv_stride = 0;
  const float* rope = nullptr;  // [positions][rope_stride]: cos of all pairs, then sin of all pairs
  int64_t rope_stride = 0;
  const int32_t* positions = nullptr;  // [rows]
  const int32_t* blocks = nullptr;     // [rows] of the row's own slot; negative: nothing is stored
  void* kv = nullptr;                  // of the layer, [block][K|V][pool_kv_heads] head slices of kv_layout.h
  bool int8 = false;                   // else bf16
  int rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int pool_kv_heads = 0, first_kv_head = 0;
  int block_size = 0;
  int rotary_dim = 0;        // leading dims of a head that rotate; even
  bool interleaved = false;  // pairs (0, 1), (2, 3), ...; else (0, rotary_dim / 2), ...
};

// cudaErrorInvalidValue for a shape that is not supported. No rows: nothing is launched.
cudaError_t RopeKv(const RopeKvArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
