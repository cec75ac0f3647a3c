#include "simulation/prefix_cache_model.h"

#include <algorithm>
#include <span>

namespace sluice::simulation {

std::vector<BlockHash> NamesOf(const pb::SequenceSpec& spec, int block_size) {
  const std::span<const int32_t> tokens(spec.tokens().data(), size_t(spec.tokens_size()));
  return engine::HashBlocks(engine::RootHash("", spec.adapter(), kNumerics, spec.cache_salt()), tokens, block_size);
}

int PrefixCacheModel::Hit(const std::vector<BlockHash>& chain, int most) {
  int hits = 0;
  while (hits < most && hits < int(chain.size())) {
    const auto it = where_.find(chain[size_t(hits)]);
    if (it == where_.end()) break;
    used_.splice(used_.end(), used_, it->second);
    ++hits;
  }
  return hits;
}

void PrefixCacheModel::Store(const std::vector<BlockHash>& chain, int blocks) {
  for (int i = 0; i < std::min(blocks, int(chain.size())); ++i) {
    const BlockHash& name = chain[size_t(i)];
    if (const auto it = where_.find(name); it != where_.end()) {
      used_.splice(used_.end(), used_, it->second);
      continue;
    }
    where_[name] = used_.insert(used_.end(), name);
    Changed(true, name);
  }
}

void PrefixCacheModel::Shrink(int64_t capacity) {
  while (size() > std::max<int64_t>(0, capacity)) {
    Changed(false, used_.front());
    where_.erase(used_.front());
    used_.pop_front();
  }
}

void PrefixCacheModel::Changed(bool stored, const BlockHash& block) {
  ++last_;
  if (listens_ && !begins_) changes_.emplace_back(stored, block);
}

void PrefixCacheModel::Begin() {
  listens_ = begins_ = true;
  changes_.clear();
}

void PrefixCacheModel::NobodyListens() {
  listens_ = begins_ = false;
  changes_.clear();
}

pb::PrefixEvents PrefixCacheModel::TakeEvents() {
  pb::PrefixEvents events;
  const auto append = [&](pb::PrefixEvent::Kind kind, const BlockHash& block, uint64_t number) {
    const int size = events.events_size();
    pb::PrefixEvent* event = size == 0 ? nullptr : events.mutable_events(size - 1);
    if (event == nullptr || event->kind() != kind) {
      event = events.add_events();
      event->set_kind(kind);
      event->set_sequence(number);
    }
    event->mutable_block_names()->append(block.Bytes());
  };
  if (std::exchange(begins_, false)) {
    pb::PrefixEvent& cleared = *events.add_events();
    cleared.set_kind(pb::PrefixEvent::CLEARED);
    cleared.set_sequence(last_);
    for (const BlockHash& block : used_) append(pb::PrefixEvent::STORED, block, 0);
    return events;
  }
  uint64_t number = last_ - changes_.size();
  for (const auto& [stored, block] : changes_) {
    append(stored ? pb::PrefixEvent::STORED : pb::PrefixEvent::REMOVED, block, ++number);
  }
  changes_.clear();
  return events;
}

}  // namespace sluice::simulation
