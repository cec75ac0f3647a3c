// What speculation gains when each draft is accepted with the same probability, independently of the others. Real
// drafts are not independent, so this overestimates somewhat; it is used to compare lengths, not to promise a speed.
#pragma once

namespace sluice::engine {

// Tokens of one verification step of k drafts: (1 - a^(k+1)) / (1 - a), the accepted ones and the one that follows.
// a in [0, 1], k >= 0.
double ExpectedTokens(double acceptance, int drafts);

// Tokens per time against steps without drafts, where each draft costs `draft_cost` of a step.
double SpeedUp(double acceptance, double draft_cost, int drafts);

// The length in [0, max_drafts] of the best speed-up, the shortest of equals: 0 iff drafts do not pay.
int BestDraftLength(double acceptance, double draft_cost, int max_drafts);

}  // namespace sluice::engine
