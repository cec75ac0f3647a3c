// Files that are built into the router (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace sluice::embedded {

extern const std::string_view kOpenApi;  // openapi.json

}  // namespace sluice::embedded
