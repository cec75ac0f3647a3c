#include "proto/discovery/registry_address.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sluice::discovery {

bool IsHostAndPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  if (host.find_first_of(" \t\r\n/,\"") != std::string_view::npos) return false;
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && host.find_first_of(":[]") != std::string_view::npos) return false;
  int port = 0;
  return absl::SimpleAtoi(absl::string_view(text.data() + colon + 1, text.size() - colon - 1), &port) && port >= 1 &&
         port <= 65535;
}

absl::StatusOr<RegistryAddress> ParseRegistry(const std::string& text) {
  RegistryAddress registry;
  if (text == "embedded") return registry;
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "etcd://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is neither embedded nor etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"));
  }
  const size_t slash = rest.find('/');
  for (const absl::string_view endpoint : absl::StrSplit(rest.substr(0, slash), ',')) {
    if (!IsHostAndPort({endpoint.data(), endpoint.size()})) {
      return absl::InvalidArgumentError(absl::StrCat("\"", endpoint, "\" in \"", text, "\" is not HOST:PORT"));
    }
    registry.endpoints.emplace_back(endpoint);
  }
  absl::string_view prefix = slash == absl::string_view::npos ? absl::string_view() : rest.substr(slash);
  while (absl::ConsumeSuffix(&prefix, "/")) {
  }
  if (!prefix.empty()) registry.prefix = std::string(prefix);
  return registry;
}

std::string RouterKey(const RegistryAddress& registry, uint64_t incarnation) {
  return absl::StrFormat("%s%016x", registry.routers(), incarnation);
}

absl::StatusOr<std::string> DialledAddress(const std::string& host, const std::string& advertise, int port) {
  const std::string& dialled = advertise.empty() ? host : advertise;
  if (dialled == "0.0.0.0" || dialled == "::" || dialled == "[::]") {
    return absl::InvalidArgumentError(
        absl::StrCat("workers cannot dial ", dialled, "; add --advertise with a host that they reach this router at"));
  }
  const bool bare = absl::StrContains(dialled, ':') && !absl::StartsWith(dialled, "[");
  std::string address = bare ? absl::StrCat("[", dialled, "]:", port) : absl::StrCat(dialled, ":", port);
  if (!IsHostAndPort(address)) return absl::InvalidArgumentError(absl::StrCat("\"", dialled, "\" is not a host"));
  return address;
}

}  // namespace sluice::discovery
