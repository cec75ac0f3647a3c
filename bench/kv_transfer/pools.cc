#include "bench/kv_transfer/pools.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "glog/logging.h"
#include "kvtransfer/checksum.h"
#include "kvtransfer/piece_split.h"

namespace sluice::bench {

std::vector<Shape> Shapes() {
  using kernels::KvDType;
  return {{"default", {30, 3, 64, 16, KvDType::kBF16}, 256, 125}, {"8b", {32, 8, 128, 16, KvDType::kBF16}, 160, 125}};
}

Pool::Pool(const Shape& shape, uint64_t seed) : shape_(shape) {
  std::mt19937_64 random(seed);
  const size_t bytes = shape.layout.block_bytes() * size_t(shape.pool_blocks);
  for (int i = 0; i < shape.layout.num_layers; ++i) {
    std::optional<kernels::cpu::HostMemory> region = kernels::cpu::HostMemory::Map(bytes);
    CHECK(region.has_value()) << "no memory for a pool";
    auto* words = reinterpret_cast<uint64_t*>(region->data());
    for (size_t w = 0; w < bytes / sizeof(uint64_t); ++w) words[w] = seed == 0 ? 0 : random();
    layers_.push_back(*std::move(region));
  }
}

kvtransfer::PoolView Pool::view() const {
  return {shape_.layout, 0, shape_.pool_blocks, [this](int layer) { return layers_[size_t(layer)].data(); }};
}

uint64_t Pool::Sum(const std::vector<int32_t>& blocks) const {
  const size_t bytes = shape_.layout.block_bytes();
  uint64_t sum = 0;
  for (const kernels::cpu::HostMemory& region : layers_) {
    for (const int32_t block : blocks) {
      sum = sum * 3 + kvtransfer::Checksum(std::span(region.data() + size_t(block) * bytes, bytes));
    }
  }
  return sum;
}

std::vector<int32_t> RandomBlocks(const Shape& shape, int count, uint64_t seed) {
  std::vector<int32_t> all(size_t(shape.pool_blocks));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
  all.resize(size_t(count));
  return all;
}

std::vector<v1::Piece> PiecesOf(const Shape& shape, int count, int64_t max_piece_bytes) {
  return kvtransfer::SplitBlocks(shape.layout, {0, shape.layout.num_layers, 0, shape.layout.num_kv_heads}, 0, count,
                                 max_piece_bytes);
}

}  // namespace sluice::bench
