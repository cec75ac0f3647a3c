// Gathers a piece from a KV pool into one contiguous run, and scatters it back: the only code that knows how a piece's
// bytes are ordered on the wire.
//
// Wire order: [layer][block][K|V][kv head][slot][head dim], restricted to the piece's ranges. Head ranges are of the
// whole model; a rank's pool holds the heads [first_head, first_head + layout.num_kv_heads).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "kvtransfer/reshard_plan.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

// One rank's view of a pool.
struct PoolView {
  kernels::KvLayout layout;
  int first_head = 0;
  int num_blocks = 0;
  std::function<std::byte*(int layer)> layer_data;  // start of the layer's region, where that is in host memory
  kernels::DeviceKv* device = nullptr;              // else this moves its bytes
};

// null: the pool's bytes move by way of the host only.
inline kernels::DeviceLinks* LinksOf(const PoolView& kv) {
  return kv.device == nullptr ? nullptr : kv.device->links();
}

// What the pool holds.
inline KvShard WholeShard(const PoolView& kv) {
  return {0, kv.layout.num_layers, kv.first_head, kv.first_head + kv.layout.num_kv_heads};
}

// INVALID_ARGUMENT naming the range that is empty or does not fit. num_lease_blocks: length of the lease's block list.
// first_block: the blocks of the list before it are not the transfer's to write.
absl::Status ValidatePiece(const v1::Piece& piece, const PoolView& kv, int num_lease_blocks, int first_block = 0);

// REQUIRES (all below): a valid piece.
size_t PieceBytes(const v1::Piece& piece, const kernels::KvLayout& layout);

// blocks: the lease's block list, ids in the pool. out/in is [PieceBytes]. Both return its checksum, which costs least
// on the way; whoever scatters knows only afterwards whether the bytes were right. An error is the device's.
// on_device: out/in is device memory, and so is the pool.
absl::StatusOr<uint64_t> GatherPiece(const v1::Piece& piece, const PoolView& kv, std::span<const int32_t> blocks,
                                     std::span<std::byte> out, bool on_device = false);
absl::StatusOr<uint64_t> ScatterPiece(const v1::Piece& piece, const PoolView& kv, std::span<const int32_t> blocks,
                                      std::span<const std::byte> in, bool on_device = false);

}  // namespace sluice::kvtransfer
