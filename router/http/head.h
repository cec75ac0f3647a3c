// The heads of HTTP messages: what an answer keeps of its request's, and the bytes of its own. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace sluice::router {

struct HttpHead {
  bool http10 = false;
  bool keep_alive = false;
  bool is_head = false;    // a HEAD request: its answer has no body
  std::string request_id;  // empty: not known yet
};

using HttpFields = std::vector<std::pair<std::string, std::string>>;

// Status line and headers, up to and with the empty line. Names and values must be fit for HTTP.
std::string HeadBytes(const HttpHead& request, int code, const std::string& content_type, const HttpFields& more);

// The path of a request's target in origin or absolute form, without its query.
std::string_view PathOf(std::string_view target);

// The query of a request's target, without its '?'; empty: none.
std::string_view QueryOf(std::string_view target);

// A part of a path with its %XX resolved; what is no such escape stays.
std::string DecodePath(std::string_view part);

// A header of a trace context as it may be passed on: printable ASCII of at most `limit` characters. A client is not to
// blame for what its proxies add, so anything else counts as absent.
std::string_view FitForTrace(std::string_view value, size_t limit);

// Printable ASCII without spaces, 1 to 256 characters.
bool IsRequestId(std::string_view id);

// For Retry-After: whole seconds, at least 1.
std::string RetryAfterSeconds(absl::Duration retry_after);

}  // namespace sluice::router
