#include "router/http/routes.h"

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

constexpr RouteInfo kRoutes[] = {
    {Route::kChat, "/v1/chat/completions", true},
    {Route::kCompletions, "/v1/completions", true},
    {Route::kModels, "/v1/models"},
    {Route::kModel, "/v1/models/"},
    {Route::kTokenize, "/tokenize", true},
    {Route::kDetokenize, "/detokenize", true},
    {Route::kLive, "/health/live", false, false},
    {Route::kReady, "/health/ready", false, false},
    {Route::kReady, "/health", false, false},
    {Route::kVersion, "/version", false, false},
    {Route::kOpenApi, "/openapi.json", false, false},
};

}  // namespace

const RouteInfo* FindRoute(std::string_view path) {
  for (const RouteInfo& info : kRoutes) {
    const std::string_view own = info.path;
    if (path == own || (own.ends_with('/') && path.starts_with(own) && path.size() > own.size())) return &info;
  }
  return nullptr;
}

std::string RouteNames() {
  std::string names;
  for (const RouteInfo& info : kRoutes) {
    if (!std::string_view(info.path).ends_with('/')) absl::StrAppend(&names, names.empty() ? "" : ", ", info.path);
  }
  return names;
}

}  // namespace sluice::router
