// The cluster's state as Prometheus reads it (/metrics). Pure.
//
// Labels are bounded by the workers there are: a pair whose peer is gone is counted under peer="gone". Counters of a
// worker start again with it, as Prometheus expects.
#pragma once

#include <string>

#include "proto/serving.pb.h"

namespace sluice::router {

std::string MetricsText(const v1::ClusterState& state);

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace sluice::router
