#include "router/router_server.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/calls.h"
#include "router/cluster_resources.h"
#include "router/event_loop.h"
#include "router/grpc_front.h"
#include "router/page.h"
#include "router/registry_service.h"

namespace sluice::router {
namespace {

constexpr char kInferenceService[] = "sluice.v1.Inference";
// Far above what the core ever takes for what waits in its mailbox.
constexpr absl::Duration kStuckAfter = absl::Seconds(10);

void InitPlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// gRPC says only that it could not listen; the system says why.
std::string WhyNotListening(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found); error != 0) {
    return gai_strerror(error);
  }
  std::string why = "unknown reason";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 1) != 0) why = std::strerror(errno);
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return why;
}

void AllowKeepalive(grpc::ServerBuilder& builder) {
  // Workers and clients ping idle connections to notice that the router is gone.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A client that vanished without closing its connection is noticed too.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

struct RouterServer::Impl {
  Impl(const ServerOptions& options, ServedModel served)
      : model(std::move(served)),
        core(options.core),
        loop(&core, [this](Action& action) { Execute(action); }),
        links(options.links, [this](Event event) { loop.Post(std::move(event)); }),
        registry([this](Event event) { loop.Post(std::move(event)); }, options.links.key),
        calls(&model, [this](Event event) { loop.Post(std::move(event)); }),
        inference(&calls, options.calls, options.http.keys),
        cluster(&loop, options.http.keys) {}

  void Execute(Action& action) {
    std::visit([this](auto& a) { Do(a); }, action);
  }
  void Do(const ClientTokens& a) { calls.Deliver(a); }
  void Do(const ClientEnd& a) { calls.Deliver(a); }
  void Do(const ConnectWorker& a) { links.Connect(a); }
  void Do(const DisconnectWorker& a) { links.Disconnect(a.link); }
  void Do(SendToWorker& a) { links.Send(std::move(a)); }
  void Do(const AnswerAnnounce& a) { registry.Answer(a); }
  void Do(const CloseAnnounce& a) { registry.Close(a); }
  void Do(const PoolChanged& a) {
    calls.SetTokenCapacity(a.token_capacity);
    SetServing(a.serving);
    if (http != nullptr) http->SetReady(a.serving);
  }
  void Do(const Note& a) {
    if (a.debug) {
      VLOG(1) << a.text;
    } else {
      LOG(INFO) << a.text;
    }
  }

  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(kInferenceService, serving);
  }

  // Members are destroyed from the bottom up; everything above may still be called by what is below.
  ServedModel model;
  RouterCore core;
  EventLoop loop;
  WorkerLinks links;
  RegistryService registry;
  Calls calls;
  InferenceService inference;
  ClusterService cluster;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<HttpFront> http;
  int port = 0;
  bool down = false;
};

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Start(const ServerOptions& options, ServedModel model) {
  InitPlugins();
  auto impl = std::make_unique<Impl>(options, std::move(model));
  grpc::ServerBuilder builder;
  const std::string address = absl::StrCat(options.host, ":", options.grpc_port);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &impl->port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not a second listener
  AllowKeepalive(builder);
  builder.RegisterService(&impl->inference);
  builder.RegisterService(&impl->cluster);
  builder.RegisterService(&impl->registry);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return absl::UnavailableError(
        absl::StrFormat("can't listen on %s: %s; choose another address with --host and "
                        "--grpc-port",
                        address, WhyNotListening(options.host, options.grpc_port)));
  }
  impl->SetServing(false);
  if (options.http.port >= 0) {
    HttpOptions http_options = options.http;
    http_options.comes_forward = [loop = &impl->loop] { return loop->BusyFor() < kStuckAfter; };
    http_options.version = options.core.version;
    http_options.resources = PageResources();
    http_options.resources.merge(ClusterResources(&impl->loop, &impl->calls));
    auto http = HttpFront::Start(http_options, &impl->calls);
    if (!http.ok()) return http.status();
    impl->http = *std::move(http);
  }
  impl->loop.Start();
  return std::unique_ptr<RouterServer>(new RouterServer(std::move(impl)));
}

RouterServer::RouterServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RouterServer::~RouterServer() {
  Shutdown();
}

int RouterServer::port() const {
  return impl_->port;
}

int RouterServer::http_port() const {
  return impl_->http == nullptr ? -1 : impl_->http->port();
}

RouterCore::Sizes RouterServer::sizes() {
  RouterCore::Sizes sizes;
  impl_->loop.Ask([&sizes](const RouterCore& core) { sizes = core.sizes(); });
  impl_->loop.Barrier();
  return sizes;
}

void RouterServer::Shutdown() {
  if (std::exchange(impl_->down, true)) return;
  impl_->loop.Post(sluice::router::Shutdown{});
  impl_->loop.Barrier();
  // The statuses of the calls are on their way; what is still open after a second is cut off.
  const absl::Time end = MonotonicNow() + absl::Seconds(1);
  if (impl_->http != nullptr) impl_->http->Drain();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  if (impl_->http != nullptr) impl_->http->Stop(end - MonotonicNow());
  impl_->links.CloseAll();
  impl_->loop.Stop();
}

}  // namespace sluice::router
