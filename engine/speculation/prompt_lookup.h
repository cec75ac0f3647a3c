// A drafter without a model: what followed the last few tokens when they occurred before, in the prompt or the answer.
// Pays on copies, quotes, code edits and loops. One per sequence; a preempted or replayed sequence may start a new one,
// since drafts never change a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/speculation/draft_length.h"
#include "engine/speculation/ngram_index.h"

namespace sluice::engine {

struct PromptLookupOptions {
  int max_drafts = 8;
  int min_ngram = 2, max_ngram = 4;  // tokens that must match; the longest match is taken, of these the most recent
  double row_cost = 0.3;             // see draft_length.h; one sequence alone on the CPU backend in f32
};

class PromptLookup {
 public:
  explicit PromptLookup(const PromptLookupOptions& options = {})
      : index_(options.min_ngram, options.max_ngram), length_(options.max_drafts, options.row_cost) {}

  // At most `limit` drafts for the tokens after `tokens`; none where nothing matches or drafting does not pay now.
  // REQUIRES: `tokens` extends those of the call before, and holds no placeholders.
  std::vector<int32_t> Draft(std::span<const int32_t> tokens, int limit);

  // The first `accepted` of the `drafted` drafts that followed `position` tokens held. Drafts that were never verified
  // need no report.
  void Report(int position, int drafted, int accepted) { length_.Report(position, drafted, accepted); }

  DraftLength& length() { return length_; }
  const DraftLength& length() const { return length_; }

 private:
  NgramIndex index_;
  DraftLength length_;
};

}  // namespace sluice::engine
