// The connection to a router, and errors in a person's words.
//
// Connecting is told apart from calling, so that "nobody listens there" never looks like an error of the cluster.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace sluice::cli {

// What SLUICE_API_KEY says: the key that goes with every call of a channel, for routers that ask for one. A variable
// and no flag, so that no list of processes shows it. Empty: none.
std::string ApiKey();

// Connects to `address` ("host:port"), or says in one line what was tried and what to do. Fails as soon as every
// address behind the name has refused, and after `patience` at the latest. Proxies of the environment are ignored.
// Channels to one address share a connection unless they ask for one of their own.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address, absl::Duration patience,
                                                       bool own_connection = false);

// "INVALID_ARGUMENT: temperature must be >= 0", on one line.
std::string DescribeError(const grpc::Status& status);

// The exit code that a call's status asks for (exit_codes.h).
int ExitCodeFor(const grpc::Status& status);

}  // namespace sluice::cli
