// How a pool of KV blocks lies in memory; the one thing the engine and the transfer share.
//
// The pool of a layer is [block][K|V][kv head][slot in block][head dim], so that a head slice of a block is contiguous:
// tensor-parallel resharding copies whole runs. What lies inside a head slice may be ordered in a mode's own way
// (cpu/paged_kv.h turns K): nobody but its kernels looks there. Layers are separate regions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::kernels {

inline constexpr int kKvLayoutVersion = 1;

// kInt8: a byte an element, and behind the elements of a head slice one float scale a token.
enum class KvDType : uint8_t { kF32, kBF16, kInt8 };

constexpr std::string_view Name(KvDType type) {
  return type == KvDType::kF32 ? "f32" : type == KvDType::kBF16 ? "bf16" : "int8";
}

constexpr size_t BytesOf(KvDType type) { return type == KvDType::kF32 ? 4 : type == KvDType::kBF16 ? 2 : 1; }

// One layer group (all its layers look alike).
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;  // of this rank
  int head_dim = 0;
  int block_size = 16;   // tokens in a block
  KvDType dtype = KvDType::kF32;

  // From the start of a head slice to its scales.
  constexpr size_t scales_offset() const { return (element_bytes() + 3) / 4 * 4; }
  constexpr size_t head_bytes() const {                                                  // one head of K or V
    return dtype == KvDType::kInt8 ? scales_offset() + size_t(block_size) * sizeof(float) : element_bytes();
  }
  constexpr size_t plane_bytes() const { return size_t(num_kv_heads) * head_bytes(); }   // K or V of a block
  constexpr size_t block_bytes() const { return 2 * plane_bytes(); }                     // in one layer
  constexpr size_t block_bytes_all_layers() const { return size_t(num_layers) * block_bytes(); }

  // Offset of a slot's vector from the start of the layer's region. is_v: 0 for K, 1 for V.
  constexpr size_t offset(int64_t block, int is_v, int head, int slot) const {
    return size_t(block) * block_bytes() + is_v * plane_bytes() + head * head_bytes() +
           size_t(slot) * head_dim * BytesOf(dtype);
  }

  bool operator==(const KvLayout&) const = default;

 private:
  constexpr size_t element_bytes() const { return size_t(block_size) * head_dim * BytesOf(dtype); }
};

constexpr int BlocksFor(int64_t tokens, int block_size) { return int((tokens + block_size - 1) / block_size); }

}  // namespace sluice::kernels
