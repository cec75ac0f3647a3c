// What a router shows of its cluster over HTTP, beside the API: /metrics, /cluster/state, /cluster/requests.
//
// Bodies are protobuf's JSON with the names of proto/serving.proto: enums by name, 64-bit integers as strings. They are
// asked of the core's thread; one that does not come forward is not waited for (UNAVAILABLE after 2 s).
#pragma once

#include <map>
#include <string>

#include "router/calls.h"
#include "router/event_loop.h"
#include "router/http/options.h"

namespace sluice::router {

// Both must outlive the resources.
std::map<std::string, HttpResource> ClusterResources(EventLoop* loop, const Calls* calls);

inline constexpr int kRequestsShown = 100;  // by default
inline constexpr int kMaxRequestsShown = 1000;

}  // namespace sluice::router
