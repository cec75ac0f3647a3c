#include "kvtransfer/piece_copy.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "kvtransfer/checksum.h"

namespace sluice::kvtransfer {
namespace {

absl::Status CheckRange(const char* name, int begin, int end, int low, int high) {
  if (begin >= low && begin < end && end <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("piece: %s range [%d, %d) is empty or outside [%d, %d)", name, begin, end, low, high));
}

// Stays in the first cache between its copying and its sum.
constexpr size_t kMostRun = 8192;

// Calls run(start, bytes) for the contiguous runs of the piece in wire order, long ones in parts.
template <typename Run>
void ForEachRun(const v1::Piece& piece, const PoolView& kv, std::span<const int32_t> blocks, Run run) {
  const size_t bytes = size_t(piece.head_end() - piece.head_begin()) * kv.layout.head_bytes();
  for (int layer = piece.layer_begin(); layer < piece.layer_end(); ++layer) {
    std::byte* base = kv.layer_data(layer);
    for (int b = piece.block_begin(); b < piece.block_end(); ++b) {
      for (int is_v = 0; is_v < 2; ++is_v) {
        std::byte* start = base + kv.layout.offset(blocks[b], is_v, piece.head_begin() - kv.first_head, 0);
        for (size_t at = 0; at < bytes; at += kMostRun) run(start + at, std::min(kMostRun, bytes - at));
      }
    }
  }
}

kernels::KvSlice SliceOf(const v1::Piece& piece, const PoolView& kv, std::span<const int32_t> blocks) {
  return {.layer_begin = piece.layer_begin(),
          .layer_end = piece.layer_end(),
          .head_begin = piece.head_begin() - kv.first_head,
          .head_end = piece.head_end() - kv.first_head,
          .blocks = blocks.subspan(size_t(piece.block_begin()), size_t(piece.block_end() - piece.block_begin()))};
}

}  // namespace

absl::Status ValidatePiece(const v1::Piece& piece, const PoolView& kv, int num_lease_blocks, int first_block) {
  if (piece.state()) return absl::UnimplementedError("piece: per-sequence state is not part of this layer group");
  if (auto s = CheckRange("block", piece.block_begin(), piece.block_end(), first_block, num_lease_blocks); !s.ok())
    return s;
  if (auto s = CheckRange("layer", piece.layer_begin(), piece.layer_end(), 0, kv.layout.num_layers); !s.ok()) return s;
  return CheckRange("head", piece.head_begin(), piece.head_end(), kv.first_head,
                    kv.first_head + kv.layout.num_kv_heads);
}

size_t PieceBytes(const v1::Piece& piece, const kernels::KvLayout& layout) {
  return size_t(piece.layer_end() - piece.layer_begin()) * size_t(piece.block_end() - piece.block_begin()) * 2 *
         size_t(piece.head_end() - piece.head_begin()) * layout.head_bytes();
}

absl::StatusOr<uint64_t> GatherPiece(const v1::Piece& piece, const PoolView& kv, std::span<const int32_t> blocks,
                                     std::span<std::byte> out, bool on_device) {
  CHECK(!on_device || LinksOf(kv) != nullptr);
  if (on_device) return kv.device->GatherOnDevice(SliceOf(piece, kv, blocks), out);
  if (kv.device != nullptr) return kv.device->Gather(SliceOf(piece, kv, blocks), out);
  RunningChecksum sum(out);
  size_t at = 0;
  ForEachRun(piece, kv, blocks, [&](const std::byte* run, size_t bytes) {
    std::memcpy(out.data() + at, run, bytes);
    sum.Cover(at += bytes);
  });
  return sum.Finish();
}

absl::StatusOr<uint64_t> ScatterPiece(const v1::Piece& piece, const PoolView& kv, std::span<const int32_t> blocks,
                                      std::span<const std::byte> in, bool on_device) {
  CHECK(!on_device || LinksOf(kv) != nullptr);
  if (on_device) return kv.device->ScatterOnDevice(SliceOf(piece, kv, blocks), in);
  if (kv.device != nullptr) return kv.device->Scatter(SliceOf(piece, kv, blocks), in);
  RunningChecksum sum(in);
  size_t at = 0;
  ForEachRun(piece, kv, blocks, [&](std::byte* run, size_t bytes) {
    sum.Cover(at + bytes);
    std::memcpy(run, in.data() + at, bytes);
    at += bytes;
  });
  return sum.Finish();
}

}  // namespace sluice::kvtransfer
