// Whose turn it is where a worker has too few blocks for all routers that ask. Pure.
//
// Without it who is quickest gets what becomes free, and that is mostly the router whose own request has just given it
// back. So a router that was refused for lack of blocks waits in a line here; while it stands at the front nobody else
// is given blocks, and once its turn was used it joins at the back when it is refused again. With one router there is
// never anybody else.
//
// Bounded: a stream stands in the line once, and leaves it with its end. Who is told that there is room and does not
// come within kTurn has lost the turn: its request may have gone elsewhere, or its client away.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "worker/request_table.h"

namespace sluice::worker {

inline constexpr absl::Duration kTurn = absl::Milliseconds(100);

class Turns {
 public:
  // False: somebody else is at the front.
  bool Mine(StreamId stream) const { return line_.empty() || line_.front().stream == stream; }

  // It asked and was refused: because it was not its turn, or for lack of blocks, with `free` of them left.
  void RefusedByTurn(StreamId stream) { Join(stream, -1); }
  void RefusedByLack(StreamId stream, int64_t free) { Join(stream, free); }
  // It asked and has what it asked for, or was refused for something else.
  void Used(StreamId stream) { Leave(stream); }
  void Ended(StreamId stream) { Leave(stream); }

  // The stream that is to hear now that there are `free` blocks; 0: none.
  StreamId Tell(int64_t free, absl::Time now);

  // Takes the turn from who did not use it.
  void Advance(absl::Time now);
  absl::Time NextTimer() const { return line_.empty() ? absl::InfiniteFuture() : line_.front().until; }

 private:
  struct Waiting {
    StreamId stream = 0;
    int64_t known_free = -1;                    // as it knows; -1: nothing
    absl::Time until = absl::InfiniteFuture();  // it was told, and has so long to come
  };
  void Join(StreamId stream, int64_t known_free);
  void Leave(StreamId stream);

  std::deque<Waiting> line_;
};

}  // namespace sluice::worker
