#include "engine/prefix_cache.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

namespace sluice::engine {

std::optional<std::vector<int32_t>> PrefixCache::Allocate(int count) {
  if (count > free()) return std::nullopt;
  while (pool_->free() < count) Evict(lru_.front());
  return pool_->Allocate(count);
}

void PrefixCache::Ref(int32_t block) {
  pool_->Ref(block);
  Node& node = nodes_[block];
  if (!node.evictable) return;
  node.evictable = false;
  lru_.erase(node.lru);
}

void PrefixCache::Unref(int32_t block) {
  Node& node = nodes_[block];
  CHECK(!node.evictable) << "block " << block << " is held by nobody";
  pool_->Unref(block);
  if (!node.stored || pool_->refs(block) != 1) return;
  node.evictable = true;
  node.lru = lru_.insert(lru_.end(), block);
}

std::vector<int32_t> PrefixCache::Match(const BlockHash& root, std::span<const int32_t> tokens, int max_blocks) {
  ++stats_.lookups;
  stats_.looked_up_tokens += tokens.size();
  std::vector<int32_t> blocks;
  BlockHash parent = root;
  for (size_t begin = 0; begin + size_t(block_size_) <= tokens.size() && int(blocks.size()) < max_blocks;
       begin += size_t(block_size_)) {
    const auto part = tokens.subspan(begin, size_t(block_size_));
    parent = ChainHash(parent, part);
    const auto it = by_hash_.find(parent);
    if (it == by_hash_.end()) break;
    if (!std::equal(part.begin(), part.end(), nodes_[it->second].tokens.begin())) {
      ++stats_.collisions;
      break;
    }
    Ref(it->second);
    blocks.push_back(it->second);
  }
  stats_.hit_tokens += blocks.size() * size_t(block_size_);
  return blocks;
}

BlockHash PrefixCache::Store(int32_t block, const BlockHash& parent, std::span<const int32_t> tokens) {
  CHECK_EQ(int(tokens.size()), block_size_);
  const BlockHash hash = ChainHash(parent, tokens);
  Node& node = nodes_[block];
  if (node.stored || by_hash_.contains(hash)) return hash;
  pool_->Ref(block);
  node.stored = true;
  node.hash = hash;
  node.tokens.assign(tokens.begin(), tokens.end());
  by_hash_[hash] = block;
  changes_.push_back({next_change_++, true, hash, parent});
  return hash;
}

void PrefixCache::Evict(int32_t block) {
  Node& node = nodes_[block];
  lru_.erase(node.lru);
  by_hash_.erase(node.hash);
  changes_.push_back({next_change_++, false, node.hash, {}});
  ++stats_.evicted_blocks;
  node = Node();
  pool_->Unref(block);
}

void PrefixCache::Clear() {
  while (!lru_.empty()) Evict(lru_.front());
}

std::vector<PrefixChange> PrefixCache::TakeChanges() {
  return std::exchange(changes_, {});
}

}  // namespace sluice::engine
