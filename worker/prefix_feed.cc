#include "worker/prefix_feed.h"

#include <algorithm>
#include <optional>

namespace sluice::worker {
namespace {

// Changes of one kind in a row are one event.
void Append(const engine::PrefixChange& change, uint64_t number, v1::PrefixEvents& events) {
  const v1::PrefixEvent::Kind kind = change.stored ? v1::PrefixEvent::STORED : v1::PrefixEvent::REMOVED;
  v1::PrefixEvent* event = events.events().empty() ? nullptr : events.mutable_events(events.events_size() - 1);
  if (event == nullptr || event->kind() != kind) {
    event = events.add_events();
    event->set_kind(kind);
    event->set_sequence(number);
  }
  event->mutable_block_names()->append(change.name.Bytes());
}

}  // namespace

v1::PrefixEvents PrefixFeed::Next(const engine::PrefixCache& cache) {
  v1::PrefixEvents events;
  if (begun_ && cache.events().last() == told_) return events;
  std::optional<std::vector<engine::PrefixChange>> changes;
  if (begun_) changes = cache.events().Since(told_);
  if (changes.has_value()) {
    changes->resize(std::min(changes->size(), kMostNames));
    for (const engine::PrefixChange& change : *changes) Append(change, change.number, events);
    told_ += changes->size();
    return events;
  }
  begun_ = true;
  told_ = cache.events().last();
  v1::PrefixEvent& cleared = *events.add_events();
  cleared.set_kind(v1::PrefixEvent::CLEARED);
  cleared.set_sequence(told_);
  std::vector<engine::PrefixChange> all = cache.Snapshot();
  all.resize(std::min(all.size(), kMostNames));  // a router that knows less finds less
  for (const engine::PrefixChange& change : all) Append(change, 0, events);
  return events;
}

}  // namespace sluice::worker
