#include "simulation/prefix_cache_model.h"

#include <algorithm>
#include <utility>

#include "simulation/rng.h"

namespace sluice::simulation {

std::string BlockName::Bytes() const {
  std::string bytes(16, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[size_t(i)] = char(hi >> (56 - 8 * i));
    bytes[size_t(8 + i)] = char(lo >> (56 - 8 * i));
  }
  return bytes;
}

std::vector<BlockName> ChainedNames(const pb::SequenceSpec& spec, int block_size) {
  std::vector<BlockName> names;
  names.reserve(size_t(spec.tokens_size() / block_size));
  uint64_t chain = Mix(std::hash<std::string>()(spec.cache_salt()), 7);
  const int32_t* token = spec.tokens().data();
  for (int block = 0; block < spec.tokens_size() / block_size; ++block) {
    for (int i = 0; i < block_size; ++i) chain = (chain ^ uint64_t(*token++)) * 0x9e3779b97f4a7c15u + (chain >> 29);
    names.push_back({Mix(chain, 1), chain = Mix(chain)});
  }
  return names;
}

int PrefixCacheModel::Hit(const std::vector<BlockName>& chain, int most) {
  int hits = 0;
  while (hits < most && hits < int(chain.size())) {
    const auto it = where_.find(chain[size_t(hits)]);
    if (it == where_.end()) break;
    used_.splice(used_.end(), used_, it->second);
    ++hits;
  }
  return hits;
}

void PrefixCacheModel::Store(const std::vector<BlockName>& chain, int blocks) {
  for (int i = 0; i < std::min(blocks, int(chain.size())); ++i) {
    const BlockName& name = chain[size_t(i)];
    if (const auto it = where_.find(name); it != where_.end()) {
      used_.splice(used_.end(), used_, it->second);
      continue;
    }
    where_[name] = used_.insert(used_.end(), name);
    Tell(pb::PrefixEvent::STORED, name, i == 0 ? nullptr : &chain[size_t(i - 1)]);
  }
}

void PrefixCacheModel::Shrink(int64_t capacity) {
  while (size() > std::max<int64_t>(0, capacity)) {
    Tell(pb::PrefixEvent::REMOVED, used_.front(), nullptr);
    where_.erase(used_.front());
    used_.pop_front();
  }
}

void PrefixCacheModel::Tell(pb::PrefixEvent::Kind kind, const BlockName& block, const BlockName* parent) {
  if (!tells_) return;
  pb::PrefixEvent& event = events_.emplace_back();
  event.set_sequence(++sequence_);
  event.set_kind(kind);
  event.add_block_hashes(block.Bytes());
  if (parent != nullptr) event.set_parent_hash(parent->Bytes());
}

std::vector<pb::PrefixEvent> PrefixCacheModel::TakeEvents() {
  return std::exchange(events_, {});
}

}  // namespace sluice::simulation
