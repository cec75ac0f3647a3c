// What an operator may set of the HTTP API.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/http/api_keys.h"
#include "router/http/head.h"

namespace sluice::router {

// Something that a path below the API's answers to GET with, such as metrics or a page.
struct HttpResource {
  std::string type;     // the content type
  bool guarded = true;  // needs an API key where there are any
  HttpFields fields;    // more of its answer's head
  // query: of the request's target, without the '?'. May take a moment. Any thread.
  std::function<absl::StatusOr<std::string>(std::string_view query)> body;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = -1;         // -1: no HTTP; 0: a free one
  std::string tls_cert;  // PEM files of the server's certificate chain and its key; empty: no TLS
  std::string tls_key;
  ApiKeys keys;
  std::vector<std::string> cors_origins;  // that browsers may use it from; "*": any
  std::string version;
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{16} << 20;
  size_t outbox_bytes = size_t{1} << 20;  // of an answer that its client doesn't read
  int connections = 4096;
  absl::Duration idle = absl::Seconds(75);        // a connection without a request
  absl::Duration receive = absl::Seconds(60);     // from a request's first byte to its last
  absl::Duration send = absl::Seconds(30);        // for a client to take what was written
  absl::Duration slow_grace = absl::Seconds(5);   // from "reads too slowly" until the connection is reset
  std::map<std::string, HttpResource> resources;  // by path
  std::function<bool()> comes_forward;            // the router's core does, for /health; absent: always. Any thread
};

}  // namespace sluice::router
