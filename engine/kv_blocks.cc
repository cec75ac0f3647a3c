#include "engine/kv_blocks.h"

#include <glog/logging.h>

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/kv_layout.h"

namespace sluice::engine {

using kernels::BlocksFor;

void KvBlocks::NameBlocks(Sequence& s, int count) const {
  while (int(s.names.size()) < count) {
    const int begin = int(s.names.size()) * block_size_;
    const BlockHash& parent = s.names.empty() ? s.root : s.names.back();
    s.names.push_back(ChainHash(parent, std::span(s.tokens).subspan(size_t(begin), size_t(block_size_))));
  }
}

bool KvBlocks::Admit(Sequence& s, int tokens, int keep_free) {
  CHECK(s.blocks.empty() && s.scheduled == 0);
  const int known = int(s.tokens.size());
  std::vector<int32_t> blocks;
  if (prefix_caching_ && s.reads_prefix_cache) {
    const int most = std::min(known - 1, tokens) / block_size_;
    NameBlocks(s, most);
    blocks = cache_.Match(std::span(s.names).first(size_t(most)), s.tokens, most);
  }
  const int hits = int(blocks.size());
  const int needed = std::max(BlocksFor(tokens, block_size_) - hits, 0);
  const auto fresh = needed + keep_free <= cache_.free() ? cache_.Allocate(needed) : std::nullopt;
  if (!fresh) {
    for (int i = hits; i-- > 0;) cache_.Unref(blocks[size_t(i)]);
    return false;
  }
  if (prefix_caching_) cache_.CountLookup(known, hits * block_size_);
  blocks.insert(blocks.end(), fresh->begin(), fresh->end());
  s.blocks = std::move(blocks);
  Hold(s.blocks);
  s.computed = s.scheduled = hits * block_size_;
  s.stored_blocks = hits;
  return true;
}

// Only the block that the next token goes into can be shared and partial; full ones are never written again. The last
// holder writes in place: the copies of the others come before all writes of the same step.
bool KvBlocks::MustCopy(const Sequence& s) const {
  const size_t at = size_t(s.scheduled / block_size_);
  return at < s.blocks.size() && holders_[size_t(s.blocks[at])] > 1;
}

void KvBlocks::Hold(std::span<const int32_t> blocks) {
  for (const int32_t block : blocks) ++holders_[size_t(block)];
}

int KvBlocks::NeededToExtend(const Sequence& s, int end) const {
  return std::max(BlocksFor(end, block_size_) - int(s.blocks.size()), 0) + (MustCopy(s) ? 1 : 0);
}

bool KvBlocks::Extend(Sequence& s, int end, std::vector<BlockCopy>& copies) {
  const int needed = NeededToExtend(s, end);
  if (needed == 0) return true;
  auto fresh = cache_.Allocate(needed);
  if (!fresh) return false;
  Hold(*fresh);
  if (MustCopy(s)) {
    int32_t& block = s.blocks[size_t(s.scheduled / block_size_)];
    copies.push_back({block, fresh->back()});
    ++copies_;
    GiveBack({block}, begun_ + 1);  // the step that is being planned reads it
    block = fresh->back();
    fresh->pop_back();
  }
  s.blocks.insert(s.blocks.end(), fresh->begin(), fresh->end());
  return true;
}

void KvBlocks::Shrink(Sequence& s, int tokens) {
  const size_t keep = size_t(BlocksFor(tokens, block_size_));
  if (s.blocks.size() <= keep) return;
  std::vector<int32_t> rest(s.blocks.begin() + int64_t(keep), s.blocks.end());
  s.blocks.resize(keep);
  GiveBack(std::move(rest), begun_);
}

void KvBlocks::Share(const Sequence& from, int tokens, Sequence& to) {
  CHECK(to.blocks.empty());
  to.blocks.assign(from.blocks.begin(), from.blocks.begin() + BlocksFor(tokens, block_size_));
  for (const int32_t block : to.blocks) cache_.Ref(block);
  Hold(to.blocks);
  const size_t full = size_t(tokens / block_size_);
  to.names.assign(from.names.begin(), from.names.begin() + int64_t(std::min(full, from.names.size())));
  to.stored_blocks = std::min(from.stored_blocks, int(full));
}

void KvBlocks::Release(Sequence& s) {
  GiveBack(std::exchange(s.blocks, {}), begun_);
  s.computed = s.scheduled = s.stored_blocks = 0;
}

void KvBlocks::GiveBack(std::vector<int32_t> blocks, uint64_t last_user) {
  if (blocks.empty()) return;
  for (const int32_t block : blocks) --holders_[size_t(block)];
  returning_ += int(blocks.size());
  waiting_.push_back({last_user, std::move(blocks)});
  StepDone(done_);
}

void KvBlocks::StepDone(uint64_t step) {
  done_ = std::max(done_, step);
  std::erase_if(waiting_, [&](const Batch& batch) {
    if (batch.last_user > done_) return false;
    returning_ -= int(batch.blocks.size());
    for (size_t i = batch.blocks.size(); i-- > 0;) cache_.Unref(batch.blocks[i]);
    return true;
  });
}

void KvBlocks::StoreComputed(Sequence& s) {
  if (!prefix_caching_) return;
  const int full = s.computed / block_size_;
  NameBlocks(s, full);
  for (; s.stored_blocks < full; ++s.stored_blocks) {
    const size_t i = size_t(s.stored_blocks);
    cache_.Store(s.blocks[i], s.names[i], i == 0 ? s.root : s.names[i - 1],
                 std::span(s.tokens).subspan(i * size_t(block_size_), size_t(block_size_)));
  }
}

}  // namespace sluice::engine
