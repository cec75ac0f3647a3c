// What `sluice top` shows, from what the router says now and said before. Pure.
#pragma once

#include <optional>
#include <string>

#include "nlohmann/json.hpp"
#include "proto/serving.pb.h"

namespace sluice::cli {

struct Sample {
  double at_s = 0;
  v1::ClusterState state;
  std::optional<v1::RequestList> requests;  // absent: the router does not list them
};

// Of a worker between two samples; absent where one of them lacks it, or it was another incarnation.
struct WorkerRate {
  double tokens_per_s = 0;  // computed: prompt tokens, and tokens of answers; drafts that failed do not count
  double steps_per_s = 0;
  double rows_per_step = 0;
};
std::optional<WorkerRate> RateOf(const v1::WorkerStatus& now, const Sample& now_at, const Sample* before);

// The state, pools and workers in lines that end in \n. `before` may be null: then there are no rates. `window_s`:
// times are those of requests that ended within it.
std::string TopFrame(const Sample& now, const Sample* before, const std::string& router, double window_s);

// The same as JSON: what `sluice status --json` says, with `tokens_per_s`, `steps_per_s` and `rows_per_step` of each
// worker, `pools`, and `recent` with what the last requests took.
nlohmann::json TopJson(const Sample& now, const Sample* before, double window_s);

// A screen of `rows` x `columns`: lines are cut, not wrapped, and each erases what it does not cover, so that a frame
// drawn over another one does not flicker.
std::string Screen(const std::string& frame, int rows, int columns);

}  // namespace sluice::cli
