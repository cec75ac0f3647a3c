#include "engine/block_pool.h"

#include <glog/logging.h>

namespace sluice::engine {

BlockPool::BlockPool(int num_blocks) : refs_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

std::optional<std::vector<int32_t>> BlockPool::Allocate(int count) {
  CHECK_GE(count, 0);
  if (count > free()) return std::nullopt;
  std::vector<int32_t> blocks(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - count);
  for (int32_t block : blocks) refs_[block] = 1;
  return blocks;
}

void BlockPool::Ref(int32_t block) {
  CHECK_GT(refs_.at(block), 0) << "block " << block << " is free";
  ++refs_[block];
}

void BlockPool::Unref(int32_t block) {
  CHECK_GT(refs_.at(block), 0) << "block " << block << " is free";
  if (--refs_[block] == 0) free_.push_back(block);
}

}  // namespace sluice::engine
