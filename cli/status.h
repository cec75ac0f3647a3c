// `sluice status`: the cluster as its router sees it.
#pragma once

#include <string>

#include "nlohmann/json.hpp"
#include "proto/serving.pb.h"

namespace sluice::cli {

struct StatusOptions {
  std::string router = "localhost:50051";
  bool json = false;
};

// {"workers":[{role, pid, port, state, blocks_total, blocks_free, running, waiting, ...}], "model": ..., ...}
nlohmann::json StateJson(const v1::ClusterState& state);

// A line about the router and a table of the workers.
std::string StateTable(const v1::ClusterState& state, const std::string& router);

// Asks the router and prints; returns the exit code.
int RunStatus(const StatusOptions& options);

}  // namespace sluice::cli
