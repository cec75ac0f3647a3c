// The router as one object: core, event loop, services and worker links wired together. main.cc and the tests run it.
//
// Shutdown: running calls end with UNAVAILABLE "router is shutting down"; everything is over within 1.5 s.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/core.h"
#include "router/generate_call.h"
#include "router/http/front.h"
#include "router/validate.h"
#include "router/worker_link.h"

namespace sluice::router {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int grpc_port = 50051;  // 0: a free one
  CoreOptions core;
  LinkOptions links;
  CallLimits calls;
  HttpOptions http;
};

class RouterServer {
 public:
  // Listens; the port is open when this returns. UNAVAILABLE names the address and what is wrong with it. The
  // tokenizer of `model` must outlive the server.
  static absl::StatusOr<std::unique_ptr<RouterServer>> Start(const ServerOptions& options, ServedModel model);
  ~RouterServer();  // shuts down

  int port() const;       // of gRPC
  int http_port() const;  // -1 without HTTP
  void Shutdown();        // idempotent

  RouterCore::Sizes sizes();  // for tests: what the core's tables hold

 private:
  struct Impl;
  explicit RouterServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::router
