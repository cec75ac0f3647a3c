#include "engine/prefix_cache.h"

#include <glog/logging.h>

#include <algorithm>

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

std::vector<int32_t> PrefixCache::Match(std::span<const BlockHash> names, std::span<const int32_t> tokens,
                                        int max_blocks) {
  CHECK_LE(names.size() * size_t(block_size_), tokens.size());
  const int limit = std::min(max_blocks, int(names.size()));
  std::vector<int32_t> blocks;
  for (int i = 0; i < limit; ++i) {
    const auto it = by_name_.find(names[i]);
    if (it == by_name_.end()) break;
    const auto part = tokens.subspan(size_t(i) * size_t(block_size_), size_t(block_size_));
    if (!std::equal(part.begin(), part.end(), nodes_[it->second].tokens.begin())) {
      ++stats_.collisions;
      break;
    }
    Ref(it->second);
    blocks.push_back(it->second);
  }
  return blocks;
}

void PrefixCache::CountLookup(int tokens, int hit_tokens) {
  ++stats_.lookups;
  stats_.looked_up_tokens += uint64_t(tokens);
  stats_.hit_tokens += uint64_t(hit_tokens);
}

void PrefixCache::Store(int32_t block, const BlockHash& name, const BlockHash& parent,
                        std::span<const int32_t> tokens) {
  CHECK_EQ(int(tokens.size()), block_size_);
  Node& node = nodes_[block];
  if (node.stored || by_name_.contains(name)) return;
  pool_->Ref(block);
  node.stored = true;
  node.name = name;
  node.parent = parent;
  node.tokens.assign(tokens.begin(), tokens.end());
  by_name_[name] = block;
  events_.Add(true, name, parent);
}

void PrefixCache::Evict(int32_t block) {
  Node& node = nodes_[block];
  lru_.erase(node.lru);
  by_name_.erase(node.name);
  events_.Add(false, node.name, {});
  ++stats_.evicted_blocks;
  node = Node();
  pool_->Unref(block);
}

void PrefixCache::Clear() {
  while (!lru_.empty()) Evict(lru_.front());
}

std::vector<PrefixChange> PrefixCache::Snapshot() const {
  std::vector<PrefixChange> all;
  for (const auto& [name, block] : by_name_) all.push_back({0, true, name, nodes_[block].parent});
  return all;
}

}  // namespace sluice::engine
