#include "kvtransfer/piece_copy.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::kvtransfer {
namespace {

// A pool whose bytes can be compared; layers are separate regions.
struct Pool {
  kernels::KvLayout layout;
  int blocks;
  std::vector<std::vector<std::byte>> layers;
  PoolView view;

  Pool(const kernels::KvLayout& l, int num_blocks, int first_head, uint64_t seed) : layout(l), blocks(num_blocks) {
    std::mt19937_64 rng(seed);
    for (int i = 0; i < l.num_layers; ++i) {
      layers.emplace_back(l.block_bytes() * num_blocks);
      for (auto& b : layers.back()) b = seed == 0 ? std::byte(0) : std::byte(rng());
    }
    view = {l, first_head, num_blocks, [this](int layer) { return layers[layer].data(); }};
  }

  std::byte at(int layer, int block, int is_v, int model_head, size_t byte) const {
    return layers[layer][layout.offset(block, is_v, model_head - view.first_head, 0) + byte];
  }
};

v1::Piece MakePiece(int b0, int b1, int l0, int l1, int h0, int h1) {
  v1::Piece p;
  p.set_block_begin(b0), p.set_block_end(b1);
  p.set_layer_begin(l0), p.set_layer_end(l1);
  p.set_head_begin(h0), p.set_head_end(h1);
  return p;
}

// Random pieces between two ranks that hold different heads of the model: what is in the piece equals the source
// afterwards, everything else is untouched.
TEST(PieceCopy, CopiesExactlyThePieceBetweenRanksOfDifferentHeads) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  const auto pick = [&rng](int low, int high) { return low + int(rng() % uint64_t(high - low)); };
  for (int round = 0; round < 200; ++round) {
    const int layers = pick(1, 5), model_heads = pick(1, 9), dim = pick(1, 4) * 8, slots = pick(1, 5);
    const int from0 = pick(0, model_heads), from1 = pick(from0 + 1, model_heads + 1);
    const int h0 = pick(from0, from1), h1 = pick(h0 + 1, from1 + 1);
    const int to0 = pick(0, h0 + 1), to1 = pick(h1, model_heads + 1);
    const auto dtype = kernels::KvDType(rng() % 3);
    Pool from({layers, from1 - from0, dim, slots, dtype}, 7, from0, 1 + round);
    Pool to({layers, to1 - to0, dim, slots, dtype}, 9, to0, 0);
    std::vector<int32_t> from_blocks = {3, 0, 6, 2}, to_blocks = {8, 1, 4, 5};
    const int b0 = pick(0, 4), b1 = pick(b0 + 1, 5), l0 = pick(0, layers), l1 = pick(l0 + 1, layers + 1);
    const v1::Piece piece = MakePiece(b0, b1, l0, l1, h0, h1);
    ASSERT_TRUE(ValidatePiece(piece, from.view, 4).ok());
    ASSERT_TRUE(ValidatePiece(piece, to.view, 4).ok());
    ASSERT_EQ(PieceBytes(piece, from.layout), PieceBytes(piece, to.layout));
    std::vector<std::byte> wire(PieceBytes(piece, from.layout));
    ASSERT_TRUE(GatherPiece(piece, from.view, from_blocks, wire).ok());
    ASSERT_TRUE(ScatterPiece(piece, to.view, to_blocks, wire).ok());
    for (int l = 0; l < layers; ++l) {
      for (int b = 0; b < 9; ++b) {
        for (int v = 0; v < 2; ++v) {
          for (int h = to0; h < to1; ++h) {
            int index = -1;
            for (int i = b0; i < b1; ++i) index = to_blocks[i] == b ? i : index;
            const bool inside = index >= 0 && l >= l0 && l < l1 && h >= h0 && h < h1;
            for (size_t k = 0; k < to.layout.head_bytes(); ++k) {
              const std::byte want = inside ? from.at(l, from_blocks[index], v, h, k) : std::byte(0);
              ASSERT_EQ(to.at(l, b, v, h, k), want) << l << " " << b << " " << v << " " << h << " " << k;
            }
          }
        }
      }
    }
  }
}

TEST(PieceCopy, RefusesRangesThatDoNotFit) {
  Pool pool({2, 3, 8, 4, kernels::KvDType::kF32}, 4, 3, 1);
  EXPECT_TRUE(ValidatePiece(MakePiece(0, 2, 0, 2, 3, 6), pool.view, 2).ok());
  for (const auto& bad : {MakePiece(0, 3, 0, 2, 3, 6), MakePiece(1, 1, 0, 2, 3, 6), MakePiece(-1, 1, 0, 2, 3, 6),
                          MakePiece(0, 2, 0, 3, 3, 6), MakePiece(0, 2, 2, 1, 3, 6), MakePiece(0, 2, 0, 2, 2, 6),
                          MakePiece(0, 2, 0, 2, 3, 7), MakePiece(0, 2, 0, 2, 5, 5)}) {
    EXPECT_EQ(ValidatePiece(bad, pool.view, 2).code(), absl::StatusCode::kInvalidArgument) << bad.ShortDebugString();
  }
}

}  // namespace
}  // namespace sluice::kvtransfer
