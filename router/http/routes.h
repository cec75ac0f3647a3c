// The paths of the HTTP API. Pure.
#pragma once

#include <string>
#include <string_view>

namespace sluice::router {

enum class Route {
  kCompletions,
  kChat,
  kTokenize,
  kDetokenize,
  kModels,
  kModel,  // one of them: the rest of the path is its name
  kLive,
  kReady,
  kVersion,
  kOpenApi,
};

struct RouteInfo {
  Route route;
  const char* path;  // one that ends in '/' stands for all below it
  bool post = false;
  bool guarded = true;  // needs an API key where there are any
};

// Null for a path that none of them is.
const RouteInfo* FindRoute(std::string_view path);

// "/v1/chat/completions, ..., and /version": for messages.
std::string RouteNames();

}  // namespace sluice::router
