#include "tests/host_cuda/engine/warp.h"

#include <algorithm>
#include <bit>

#include "tests/host_cuda/engine/machine.h"

namespace host_cuda {
namespace {

template <class Slot>
Slot& SlotOf(const Meeting& meeting, uint32_t lane) {
  return *static_cast<Slot*>(meeting.slot[lane]);
}

template <class Body>
void ForLanes(uint32_t lanes, Body body) {
  for (; lanes != 0; lanes &= lanes - 1) body(static_cast<uint32_t>(std::countr_zero(lanes)));
}

struct ShuffleSlot {
  ShuffleMode mode;
  uint32_t value, b, c, result, source;
  bool in_range, missing;
};

// PTX ISA, shfl.sync.
void ShuffleLane(uint32_t lane, ShuffleSlot& slot) {
  const uint32_t b = slot.b & 31, clamp = slot.c & 31, segment = slot.c >> 8 & 31;
  const uint32_t last = (lane & segment) | (clamp & ~segment), first = lane & segment;
  uint32_t source = lane;
  switch (slot.mode) {
    case ShuffleMode::kUp:
      source = lane - b;
      slot.in_range = static_cast<int>(source) >= static_cast<int>(last);
      break;
    case ShuffleMode::kDown:
      source = lane + b;
      slot.in_range = source <= last;
      break;
    case ShuffleMode::kButterfly:
      source = lane ^ b;
      slot.in_range = source <= last;
      break;
    case ShuffleMode::kIndex:
      source = first | (b & ~segment);
      slot.in_range = source <= last;
      break;
  }
  slot.source = slot.in_range ? source : lane;
}

void FinishShuffle(Meeting& meeting) {
  ForLanes(meeting.lanes, [&](uint32_t lane) {
    auto& slot = SlotOf<ShuffleSlot>(meeting, lane);
    ShuffleLane(lane, slot);
    slot.missing = (meeting.lanes >> slot.source & 1) == 0;
    if (!slot.missing) slot.result = SlotOf<ShuffleSlot>(meeting, slot.source).value;
  });
}

struct BallotSlot {
  bool predicate;
  uint32_t ballot, lanes;
};

BallotSlot CountVotes(const char* operation, bool predicate, uint32_t mask, Loc where) {
  BallotSlot slot{predicate, 0, 0};
  Meet(
      mask, operation, &slot,
      [](Meeting& meeting) {
        uint32_t ballot = 0;
        ForLanes(meeting.lanes, [&](uint32_t lane) {
          if (SlotOf<BallotSlot>(meeting, lane).predicate) ballot |= 1u << lane;
        });
        ForLanes(meeting.lanes, [&](uint32_t lane) {
          SlotOf<BallotSlot>(meeting, lane).ballot = ballot;
          SlotOf<BallotSlot>(meeting, lane).lanes = meeting.lanes;
        });
      },
      where);
  return slot;
}

struct MatchSlot {
  uint64_t value;
  uint32_t same, lanes;
};

void FinishMatch(Meeting& meeting) {
  ForLanes(meeting.lanes, [&](uint32_t lane) {
    auto& slot = SlotOf<MatchSlot>(meeting, lane);
    slot.same = 0;
    slot.lanes = meeting.lanes;
    ForLanes(meeting.lanes, [&](uint32_t other) {
      if (SlotOf<MatchSlot>(meeting, other).value == slot.value) slot.same |= 1u << other;
    });
  });
}

struct ReduceSlot {
  Reduction reduction;
  uint32_t value, result;
};

uint32_t Combine(Reduction reduction, uint32_t a, uint32_t b) {
  const auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
  switch (reduction) {
    case Reduction::kAdd:
      return a + b;
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMinSigned:
      return static_cast<uint32_t>(std::min(x, y));
    case Reduction::kMaxSigned:
      return static_cast<uint32_t>(std::max(x, y));
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    case Reduction::kXor:
      break;
  }
  return a ^ b;
}

void FinishReduce(Meeting& meeting) {
  const auto first = static_cast<uint32_t>(std::countr_zero(meeting.lanes));
  uint32_t result = SlotOf<ReduceSlot>(meeting, first).value;
  ForLanes(meeting.lanes & (meeting.lanes - 1), [&](uint32_t lane) {
    const auto& slot = SlotOf<ReduceSlot>(meeting, lane);
    result = Combine(slot.reduction, result, slot.value);
  });
  ForLanes(meeting.lanes, [&](uint32_t lane) { SlotOf<ReduceSlot>(meeting, lane).result = result; });
}

constexpr const char* kShuffleNames[] = {"shfl.up", "shfl.down", "shfl.bfly", "shfl.idx"};

}  // namespace

void SyncWarp(uint32_t mask, Loc where) {
  Meet(mask, "syncwarp", nullptr, nullptr, where);
}

uint32_t Shuffle(ShuffleMode mode, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool* in_range, Loc where) {
  ShuffleSlot slot{mode, value, b, c, value, 0, false, false};
  const char* operation = kShuffleNames[static_cast<uint32_t>(mode)];
  Meet(mask, operation, &slot, FinishShuffle, where);
  if (slot.missing) {
    Fail(where, "%s: lane %u reads lane %u, which is not in mask %08x or has exited", operation, Self().lane,
         slot.source, mask);
  }
  if (in_range != nullptr) *in_range = slot.in_range;
  return slot.result;
}

uint32_t Ballot(bool predicate, uint32_t mask, Loc where) {
  return CountVotes("vote.ballot", predicate, mask, where).ballot;
}

bool VoteAll(bool predicate, uint32_t mask, Loc where) {
  const BallotSlot votes = CountVotes("vote.all", predicate, mask, where);
  return votes.ballot == votes.lanes;
}

bool VoteAny(bool predicate, uint32_t mask, Loc where) {
  return CountVotes("vote.any", predicate, mask, where).ballot != 0;
}

bool VoteUniform(bool predicate, uint32_t mask, Loc where) {
  const BallotSlot votes = CountVotes("vote.uni", predicate, mask, where);
  return votes.ballot == votes.lanes || votes.ballot == 0;
}

uint32_t MatchAny(uint64_t value, uint32_t mask, Loc where) {
  MatchSlot slot{value, 0, 0};
  Meet(mask, "match.any", &slot, FinishMatch, where);
  return slot.same;
}

uint32_t MatchAll(uint64_t value, uint32_t mask, bool* same, Loc where) {
  MatchSlot slot{value, 0, 0};
  Meet(mask, "match.all", &slot, FinishMatch, where);
  const bool all = slot.same == slot.lanes;
  if (same != nullptr) *same = all;
  return all ? slot.lanes : 0;
}

uint32_t Reduce(Reduction reduction, uint32_t value, uint32_t mask, Loc where) {
  ReduceSlot slot{reduction, value, value};
  Meet(mask, "redux", &slot, FinishReduce, where);
  return slot.result;
}

uint32_t ActiveMask() {
  return 1u << Self().lane;
}

}  // namespace host_cuda
