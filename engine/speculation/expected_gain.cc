#include "engine/speculation/expected_gain.h"

namespace sluice::engine {

double ExpectedTokens(double acceptance, int drafts) {
  double tokens = 1.0, reached = 1.0;
  for (int i = 0; i < drafts; ++i) tokens += reached *= acceptance;
  return tokens;
}

double SpeedUp(double acceptance, double draft_cost, int drafts) {
  return ExpectedTokens(acceptance, drafts) / (1.0 + draft_cost * drafts);
}

int BestDraftLength(double acceptance, double draft_cost, int max_drafts) {
  int best = 0;
  double gain = 1.0;
  for (int k = 1; k <= max_drafts; ++k) {
    const double with_k = SpeedUp(acceptance, draft_cost, k);
    if (with_k > gain) gain = with_k, best = k;
  }
  return best;
}

}  // namespace sluice::engine
