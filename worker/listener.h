// A gRPC server on a port that nobody shares, with health and reflection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/server.h"
#include "proto/transport_security.h"

namespace sluice::worker {

struct Listening {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// "[::1]" for an IPv6 address, the host itself otherwise.
std::string HostInAddress(const std::string& host);

// Whether Listen would work now, for a mistake to be told before anything slow; it may still fail later. The same
// error.
absl::Status CheckCanListen(const std::string& host, int port);

// `services` must outlive the server. UNAVAILABLE, with what the system says and the next step, if it cannot listen.
absl::StatusOr<Listening> Listen(const std::string& host, int port, const std::vector<grpc::Service*>& services,
                                 const TransportSecurity& security = {});

}  // namespace sluice::worker
