#include "router/page.h"

#include <string_view>

#include "absl/status/statusor.h"
#include "router/page_files.h"

namespace sluice::router {
namespace {

// Everything comes from this router, nothing is inline, and no other site may frame it.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::string TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "image/svg+xml";
}

}  // namespace

std::map<std::string, HttpResource> PageResources() {
  std::map<std::string, HttpResource> resources;
  for (const PageFile& file : PageFiles()) {
    const std::string name(file.name);
    resources[name == "index.html" ? "/" : "/page/" + name] = {
        .type = TypeOf(name),
        .guarded = false,
        .fields = {{"Content-Security-Policy", kPolicy},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"}},
        .body = [text = file.text](std::string_view) { return absl::StatusOr<std::string>(std::string(text)); }};
  }
  return resources;
}

}  // namespace sluice::router
