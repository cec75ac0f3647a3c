// What Prometheus reads of a router (/metrics): its requests, its workers as they report themselves, and the KV between
// them. Pure. docs/operations.md lists every name; a test holds that list.
//
// Labels are bounded by the workers there are: no requests, no tenants; a pair whose peer is gone is counted under
// peer="gone". A worker that is gone keeps `sluice_worker_up` until its router forgets it, a lease later; counters of a
// worker start again with it, as Prometheus expects.
#pragma once

#include <string>

#include "proto/serving.pb.h"
#include "router/core_counters.h"
#include "router/request_metrics.h"

namespace sluice::router {

struct MetricsInput {
  v1::ClusterState state;
  CoreCounters counters;
  RequestMetrics requests;
};

std::string MetricsText(const MetricsInput& input);

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace sluice::router
