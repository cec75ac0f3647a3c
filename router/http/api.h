// What the HTTP API does with one message: an answer at once, or a request that the router computes. No sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/time/time.h"
#include "router/calls.h"
#include "router/http/api_keys.h"
#include "router/http/api_request.h"
#include "router/http/head.h"
#include "router/http/options.h"
#include "router/http/routes.h"

namespace sluice::router {

// What a server's sessions share.
struct HttpShared {
  HttpOptions options;
  Calls* calls = nullptr;
  int64_t started = 0;  // seconds since 1970
  std::atomic<bool> ready = false;
  std::atomic<bool> draining = false;
};

struct HttpMessage {
  std::string_view method;  // in upper case
  std::string_view target;
  std::string_view body;
  std::function<std::string_view(std::string_view name)> header;  // empty where it is absent
  std::string request_id;                                         // set by TakeRequestId
};

struct HttpReply {
  int code = 200;
  std::string body;
  std::string type = "application/json";
  HttpFields fields;
};
HttpReply ErrorReply(const absl::Status& status, absl::Duration retry_after = absl::ZeroDuration());

// Fills in the client's X-Request-Id, or a fresh one; INVALID_ARGUMENT where the client's is none.
absl::Status TakeRequestId(HttpMessage& message, uint64_t draw);

// Any thread; tokenizes, so it may take a moment for a long text.
std::variant<HttpReply, ApiRequest> Handle(const HttpShared& shared, const HttpMessage& message);

// What every answer to a browser of this origin says; nothing for origins that are not allowed.
HttpFields CorsFields(const HttpOptions& options, std::string_view origin);

}  // namespace sluice::router
