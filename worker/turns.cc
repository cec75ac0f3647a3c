#include "worker/turns.h"

#include <algorithm>

namespace sluice::worker {

void Turns::Join(StreamId stream, int64_t known_free) {
  const auto it = std::find_if(line_.begin(), line_.end(), [&](const Waiting& w) { return w.stream == stream; });
  Waiting& waiting = it == line_.end() ? line_.emplace_back() : *it;
  waiting = {.stream = stream, .known_free = known_free};
}

void Turns::Leave(StreamId stream) {
  std::erase_if(line_, [&](const Waiting& w) { return w.stream == stream; });
}

StreamId Turns::Tell(int64_t free, absl::Time now) {
  if (line_.empty()) return 0;
  Waiting& front = line_.front();
  const bool more = free > front.known_free;
  front.known_free = free;  // what is taken meanwhile may come back
  if (!more) return 0;
  front.until = now + kTurn;
  return front.stream;
}

void Turns::Advance(absl::Time now) {
  if (!line_.empty() && line_.front().until <= now) line_.pop_front();
}

}  // namespace sluice::worker
