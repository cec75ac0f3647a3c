// A backend that is broken in one way, around a good one: what the suite must catch.
// Limits: the good one's KV pool is f32 in host memory, and its phases are done when they return (the CPU's).
#pragma once

#include "kernels/conformance/conformance.h"

namespace sluice::kernels::conformance {

enum class Fault {
  kNone,
  kLogitsDependOnBatch,  // one bit, where other sequences are in the step
  kLogitsDependOnChunk,  // one bit, of rows that are not the first of their sequence
  kLogitsDependOnOrder,  // one bit, of the step's last sequence
  kLogitsOfOtherRows,    // where not all rows are asked for, the logits of the first ones
  kKvDependsOnChunk,     // one bit of V, in steps of many rows; no logits of those steps change
  kDraftsLeaveATrace,    // a slot that was written once keeps what it has
  kBlocksInOrder,        // a sequence's blocks are taken in ascending order, whatever the table says
  kReadsUnusedEntries,   // what a table holds past the context is a block that is looked at
  kCopiesKOnly,          // CopyBlock forgets V
};

Variant Break(Variant variant, Fault fault);

}  // namespace sluice::kernels::conformance
