// The HTTP/1.1 server: /v1/completions, /v1/models, /health/live, /health/ready, /metrics.
//
// Promises: connections cost no thread; a client that went away cancels its request in every state; what a client can
// make the router hold is bounded (headers, body, pipelined bytes, unread answer, connections); whatever arrives on a
// socket ends in an answer or in a closed connection.
// Limits: no TLS, no compression, no HTTP/2. A client that half-closes its connection counts as gone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/calls.h"

namespace sluice::router {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = -1;  // -1: no HTTP; 0: a free one
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{16} << 20;
  size_t outbox_bytes = size_t{1} << 20;  // of an answer that its client doesn't read
  int connections = 4096;
  absl::Duration idle = absl::Seconds(75);       // a connection without a request
  absl::Duration receive = absl::Seconds(60);    // from a request's first byte to its last
  absl::Duration send = absl::Seconds(30);       // for a client to take what was written
  absl::Duration slow_grace = absl::Seconds(5);  // from "reads too slowly" until the connection is reset
  // What /metrics says, for Prometheus; absent: there is no such path. May take a moment. Any thread.
  std::function<absl::StatusOr<std::string>()> metrics;
  std::function<bool()> comes_forward;  // the router's core does, for /health; absent: always. Any thread
};

class HttpFront {
 public:
  // Listens, on its own threads; the port is open when this returns. UNAVAILABLE names the address and what is wrong
  // with it. `calls` must outlive the front.
  static absl::StatusOr<std::unique_ptr<HttpFront>> Start(const HttpOptions& options, Calls* calls);
  ~HttpFront();  // stops

  int port() const;
  void SetReady(bool ready);  // what /health/ready says; from any thread

  // Takes no more connections and closes those without a request.
  void Drain();
  // Waits for what runs, `grace` at most, then cuts it off. No thread of the front runs afterwards. Idempotent.
  void Stop(absl::Duration grace);

 private:
  struct Impl;
  explicit HttpFront(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::router
