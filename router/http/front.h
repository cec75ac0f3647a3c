// The HTTP/1.1 server; routes.h has its paths.
//
// Promises: connections cost no thread; a client that went away cancels its request in every state; what a client can
// make the router hold is bounded (headers, body, pipelined bytes, unread answer, connections); whatever arrives on a
// socket ends in an answer or in a closed connection.
// Limits: no compression, no HTTP/2. A client that half-closes its connection counts as gone.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/calls.h"
#include "router/http/options.h"

namespace sluice::router {

class HttpFront {
 public:
  // Listens, on its own threads; the port is open when this returns. UNAVAILABLE names the address and what is wrong
  // with it, INVALID_ARGUMENT what is wrong with a file of TLS. `calls` must outlive the front.
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
