#include "worker/listener.h"

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"

namespace sluice::worker {
namespace {

constexpr int kLargestMessage = 64 << 20;  // a prompt of a million tokens is about 4 MiB
constexpr int kKeepaliveMs = 10000;        // finds a router whose host is gone
constexpr int kKeepaliveTimeoutMs = 5000;

// gRPC does not say why it cannot listen; a plain socket does. Empty: it can.
std::string WhyNot(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return gai_strerror(error);
  }
  std::string why;
  const int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0) why = strerror(errno);
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return why;
}

absl::Status CannotListen(const std::string& host, int port, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", HostInAddress(host), ":", port, ": ",
                                             why.empty() ? "the server did not start" : why,
                                             "; try another --port (0 takes a free one) or --host"));
}

}  // namespace

absl::Status CheckCanListen(const std::string& host, int port) {
  const std::string why = WhyNot(host, port);
  return why.empty() ? absl::OkStatus() : CannotListen(host, port, why);
}

std::string HostInAddress(const std::string& host) {
  return host.find(':') != std::string::npos && host[0] != '[' ? absl::StrCat("[", host, "]") : host;
}

absl::StatusOr<Listening> Listen(const std::string& host, int port, const std::vector<grpc::Service*>& services,
                                 const TransportSecurity& security) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  Listening listening;
  grpc::ServerBuilder builder;
  // Otherwise two workers could share a port without knowing.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.AddListeningPort(absl::StrCat(HostInAddress(host), ":", port), security.server(),
                           &listening.port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  listening.server = builder.BuildAndStart();
  if (listening.server == nullptr || listening.port == 0) {
    return CannotListen(host, port, WhyNot(host, port));
  }
  return listening;
}

}  // namespace sluice::worker
