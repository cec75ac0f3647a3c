#include "cli/bench/goodput_search.h"

#include <cmath>

namespace sluice::cli::bench {

// A noisy system may keep the share at a rate above one where it did not. The lowest rate that failed then bounds the
// search, so that what is stated is never luck at a high rate.
const RateTry* GoodputSearch::worst() const {
  const RateTry* found = nullptr;
  for (const RateTry& t : tries_) {
    if (!t.kept && (found == nullptr || t.rate < found->rate)) found = &t;
  }
  return found;
}

const RateTry* GoodputSearch::best() const {
  const RateTry* bound = worst();
  const RateTry* found = nullptr;
  for (const RateTry& t : tries_) {
    if (!t.kept || (bound != nullptr && t.rate >= bound->rate)) continue;
    if (found == nullptr || t.rate > found->rate) found = &t;
  }
  return found;
}

std::optional<double> GoodputSearch::Next() const {
  if (tries_.empty()) return options_.first_rate;
  if (int(tries_.size()) >= options_.most_tries) return std::nullopt;
  const RateTry* good = best();
  const RateTry* bad = worst();
  if (bad == nullptr) return good->rate * 2;
  if (good == nullptr) return bad->rate / 2;
  if (bad->rate - good->rate <= options_.precision * good->rate) return std::nullopt;
  // Of rates that differ by a factor the middle is the geometric one.
  return std::sqrt(good->rate * bad->rate);
}

void GoodputSearch::Took(double rate, int good, int offered) {
  tries_.push_back({rate, good, offered, Wilson(good, offered), offered > 0 && good >= options_.share * offered});
}

}  // namespace sluice::cli::bench
