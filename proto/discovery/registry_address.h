// Where routers and workers of a cluster find each other, as `--registry` says it:
//
//   embedded                                    workers dial the routers of their command line
//   etcd://HOST:PORT[,HOST:PORT...][/PREFIX]    routers stand in etcd, and workers look there
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::discovery {

struct RegistryAddress {
  std::vector<std::string> endpoints;  // HOST:PORT of etcd's members; none: embedded
  std::string prefix = "/sluice";      // begins with a slash, does not end with one

  bool embedded() const { return endpoints.empty(); }
  std::string routers() const { return prefix + "/routers/"; }  // keys of routers begin so
};

// "HOST:PORT" with a port from 1 to 65535; an IPv6 host is in brackets.
bool IsHostAndPort(std::string_view text);

// INVALID_ARGUMENT in one line.
absl::StatusOr<RegistryAddress> ParseRegistry(const std::string& text);

// The key of a router: its incarnation, so that two lives of one never share a key.
std::string RouterKey(const RegistryAddress& registry, uint64_t incarnation);

// What stands for a router that listens on `host`: the host that workers dial, and the port. INVALID_ARGUMENT where
// nobody could dial it.
absl::StatusOr<std::string> DialledAddress(const std::string& host, const std::string& advertise, int port);

}  // namespace sluice::discovery
