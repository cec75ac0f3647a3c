// KV pools as workers have them, and the pieces of a prompt in them: what both the limit and the endpoints move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/host_memory.h"
#include "kernels/kv_layout.h"
#include "kvtransfer/piece_copy.h"
#include "proto/transfer.pb.h"

namespace sluice::bench {

struct Shape {
  std::string name;
  kernels::KvLayout layout;
  int pool_blocks = 0;
  int prompt_blocks = 0;  // of one measurement
};

// The default model's layout, and that of a model of 8 billion parameters with grouped queries.
std::vector<Shape> Shapes();

// One process's pool: a region for each layer, in large pages where the system gives them, every page touched.
class Pool {
 public:
  // seed 0: zeros.
  Pool(const Shape& shape, uint64_t seed);

  kvtransfer::PoolView view() const;
  // Of the blocks' bytes in the order of the list.
  uint64_t Sum(const std::vector<int32_t>& blocks) const;

 private:
  const Shape shape_;
  std::vector<kernels::cpu::HostMemory> layers_;
};

// `count` different blocks of the pool in random order.
std::vector<int32_t> RandomBlocks(const Shape& shape, int count, uint64_t seed);

// What an endpoint makes of blocks [0, count) of a list.
std::vector<v1::Piece> PiecesOf(const Shape& shape, int count, int64_t max_piece_bytes);

}  // namespace sluice::bench
