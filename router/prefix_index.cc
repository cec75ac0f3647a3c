#include "router/prefix_index.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace sluice::router {
namespace {

constexpr size_t kNameBytes = 16;
constexpr size_t kMaxWorkers = std::numeric_limits<uint16_t>::max();

// Names lie one after the other, big-endian (engine::BlockHash::Bytes).
engine::BlockHash NameAt(std::string_view names, size_t i) {
  const auto word = [&](size_t at) {
    uint64_t value = 0;
    for (size_t b = 0; b < 8; ++b) value = value << 8 | uint8_t(names[at + b]);
    return value;
  };
  return {word(i * kNameBytes), word(i * kNameBytes + 8)};
}

}  // namespace

PrefixIndex::Worker* PrefixIndex::Find(uint64_t worker, bool make) {
  auto it = workers_.find(worker);
  if (it != workers_.end()) return &it->second;
  if (!make || workers_.size() >= kMaxWorkers) return nullptr;
  auto free = std::find(owners_.begin(), owners_.end(), uint64_t{0});
  if (free == owners_.end()) free = owners_.insert(owners_.end(), 0);
  *free = worker;
  Worker& fresh = workers_[worker];
  fresh.slot = Slot(free - owners_.begin());
  return &fresh;
}

PrefixIndex::Holder* PrefixIndex::FindHolder(const engine::BlockHash& name, Slot slot, bool make, Worker& worker) {
  auto it = blocks_.find(name);
  if (it != blocks_.end()) {
    for (Holder& holder : it->second) {
      if (holder.slot == slot) return &holder;
    }
  }
  if (!make) return nullptr;
  if (entries_ >= limit_) {
    ++left_out_;
    return nullptr;
  }
  ++entries_;
  ++worker.blocks;
  Holders& holders = it != blocks_.end() ? it->second : blocks_[name];
  holders.push_back({slot});
  return &holders.back();
}

void PrefixIndex::Settle(const engine::BlockHash& name, Slot slot, Worker& worker) {
  auto it = blocks_.find(name);
  if (it == blocks_.end()) return;
  Holders& holders = it->second;
  const auto empty = std::find_if(holders.begin(), holders.end(),
                                  [&](const Holder& h) { return h.slot == slot && !h.stored && h.promises == 0; });
  if (empty == holders.end()) return;
  *empty = holders.back();
  holders.pop_back();
  --entries_;
  --worker.blocks;
  if (holders.empty()) blocks_.erase(it);
}

bool PrefixIndex::Apply(uint64_t id, const pb::PrefixEvents& events) {
  Worker* worker = Find(id, true);
  if (worker == nullptr) return true;
  for (const pb::PrefixEvent& event : events.events()) {
    const std::string_view names = event.block_names();
    const size_t count = names.size() / kNameBytes;
    if (names.size() % kNameBytes != 0) {
      Void(*worker);
      return false;
    }
    if (event.kind() == pb::PrefixEvent::CLEARED) {
      Void(*worker);
      worker->listening = true;
      worker->last = event.sequence();
      continue;
    }
    if (event.sequence() != 0) {  // otherwise it belongs to the picture that CLEARED began
      if (!worker->listening || event.sequence() != worker->last + 1) {
        Void(*worker);
        return false;
      }
      worker->last += count;
    } else if (!worker->listening) {
      return false;
    }
    const bool stored = event.kind() == pb::PrefixEvent::STORED;
    for (size_t i = 0; i < count; ++i) {
      const engine::BlockHash name = NameAt(names, i);
      if (Holder* holder = FindHolder(name, worker->slot, stored, *worker)) holder->stored = stored;
      if (!stored) Settle(name, worker->slot, *worker);
    }
  }
  return true;
}

void PrefixIndex::Void(Worker& worker) {
  worker.listening = false;
  worker.last = 0;
  if (worker.blocks == 0) return;
  absl::erase_if(blocks_, [&](auto& entry) {
    Holders& holders = entry.second;
    for (size_t i = 0; i < holders.size(); ++i) {
      if (holders[i].slot != worker.slot) continue;
      holders[i].stored = false;
      if (holders[i].promises > 0) break;
      holders[i] = holders.back();
      holders.pop_back();
      --entries_;
      --worker.blocks;
      break;
    }
    return holders.empty();
  });
}

void PrefixIndex::Forget(uint64_t id) {
  Worker* worker = Find(id, false);
  if (worker == nullptr) return;
  if (worker->blocks > 0) {
    absl::erase_if(blocks_, [&](auto& entry) {
      Holders& holders = entry.second;
      const auto its =
          std::remove_if(holders.begin(), holders.end(), [&](const Holder& h) { return h.slot == worker->slot; });
      entries_ -= size_t(holders.end() - its);
      holders.erase(its, holders.end());
      return holders.empty();
    });
  }
  owners_[worker->slot] = 0;
  workers_.erase(id);
}

void PrefixIndex::Promise(uint64_t id, std::span<const engine::BlockHash> blocks) {
  Worker* worker = Find(id, true);
  if (worker == nullptr) return;
  for (const engine::BlockHash& name : blocks) {
    Holder* holder = FindHolder(name, worker->slot, true, *worker);
    if (holder != nullptr && holder->promises < std::numeric_limits<uint16_t>::max()) ++holder->promises;
  }
}

// What found no room then may have found it meanwhile: a promise too few is taken back, which costs a hit at most.
void PrefixIndex::Release(uint64_t id, std::span<const engine::BlockHash> blocks) {
  Worker* worker = Find(id, false);
  if (worker == nullptr) return;
  for (const engine::BlockHash& name : blocks) {
    Holder* holder = FindHolder(name, worker->slot, false, *worker);
    if (holder == nullptr || holder->promises == 0) continue;
    --holder->promises;
    Settle(name, worker->slot, *worker);
  }
}

std::map<uint64_t, int> PrefixIndex::Match(std::span<const engine::BlockHash> blocks) const {
  std::map<uint64_t, int> matches;
  std::vector<Slot> on;  // those that have all blocks so far
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto it = blocks_.find(blocks[i]);
    if (it == blocks_.end()) break;
    const Holders& holders = it->second;
    if (i == 0) {
      for (const Holder& holder : holders) on.push_back(holder.slot);
    } else {
      std::erase_if(on, [&](Slot slot) {
        return std::none_of(holders.begin(), holders.end(), [&](const Holder& h) { return h.slot == slot; });
      });
    }
    if (on.empty()) break;
    for (Slot slot : on) matches[owners_[slot]] = int(i) + 1;
  }
  return matches;
}

uint64_t PrefixIndex::last_of(uint64_t worker) const {
  const auto it = workers_.find(worker);
  return it == workers_.end() ? 0 : it->second.last;
}

}  // namespace sluice::router
