// `sluice models`: what is served.
#pragma once

#include <string>

#include "nlohmann/json.hpp"
#include "proto/serving.pb.h"

namespace sluice::cli {

struct ModelsOptions {
  std::string router = "localhost:50051";
  bool json = false;
};

// {"models": [{"name", "context_length", "numerics": [...], "workers": {"prefill", "decode", "both"}}]}: workers that
// get work, and their arithmetic.
nlohmann::json ModelsJson(const v1::ClusterState& state);
std::string ModelsTable(const v1::ClusterState& state);

// Asks the router and prints; returns the exit code.
int RunModels(const ModelsOptions& options);

}  // namespace sluice::cli
