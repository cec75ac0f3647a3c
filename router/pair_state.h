// Whether a prefill worker can hand KV over to a decode worker, as the prefill worker's reports say.
#pragma once

namespace sluice::router {

enum class PairState {
  kUnknown,  // not reported, or being made: it may come up
  kUp,
  kRefused,  // they do not fit
};

}  // namespace sluice::router
