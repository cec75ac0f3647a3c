#include "router/http/front.h"

#include <glog/logging.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "router/http/error.h"
#include "router/http/session.h"

namespace sluice::router {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

constexpr int kThreads = 2;  // so that a long prompt being tokenized doesn't hold up every stream

// A client that vanished without closing its connection is noticed within half a minute.
void NoticeVanishedPeers(tcp::socket& socket) {
  const int fd = socket.native_handle();
  const auto set = [fd](int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

void TurnAway(tcp::socket socket) {
  const std::string body = ErrorBody(503, "the router has too many connections");
  const std::string answer = absl::StrFormat(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
      "Content-Length: %d\r\n\r\n%s",
      body.size(), body);
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(net::buffer(answer), ignored);
}

}  // namespace

struct HttpFront::Impl {
  explicit Impl(const HttpOptions& options, Calls* calls) {
    shared.options = options;
    shared.calls = calls;
    shared.started = absl::ToUnixSeconds(absl::Now());
  }

  absl::Status ReadTls();
  absl::Status Listen();
  error_code Bind(const tcp::endpoint& endpoint);
  net::awaitable<void> Accept(tcp::acceptor* acceptor);
  void Adopt(tcp::socket socket);

  HttpShared shared;
  std::optional<net::ssl::context> tls;
  int port = 0;
  std::vector<std::thread> threads;

  absl::Mutex mutex;
  uint64_t next_session ABSL_GUARDED_BY(mutex) = 1;
  absl::flat_hash_map<uint64_t, std::weak_ptr<HttpSession>> sessions ABSL_GUARDED_BY(mutex);

  // The last members: sessions that are left are destroyed with them, and they use what is above.
  net::io_context io{kThreads};
  std::list<tcp::acceptor> acceptors;
};

absl::Status HttpFront::Impl::ReadTls() {
  const HttpOptions& options = shared.options;
  if (options.tls_cert.empty() && options.tls_key.empty()) return absl::OkStatus();
  if (options.tls_cert.empty() || options.tls_key.empty()) {
    return absl::InvalidArgumentError("--http-tls-cert and --http-tls-key belong together");
  }
  tls.emplace(net::ssl::context::tls_server);
  error_code error;
  tls->set_options(net::ssl::context::default_workarounds | net::ssl::context::no_tlsv1 | net::ssl::context::no_tlsv1_1,
                   error);
  if (tls->use_certificate_chain_file(options.tls_cert, error); error) {
    return absl::InvalidArgumentError(absl::StrFormat("--http-tls-cert: %s: %s", options.tls_cert, error.message()));
  }
  if (tls->use_private_key_file(options.tls_key, net::ssl::context::pem, error); error) {
    return absl::InvalidArgumentError(absl::StrFormat("--http-tls-key: %s: %s", options.tls_key, error.message()));
  }
  return absl::OkStatus();
}

error_code HttpFront::Impl::Bind(const tcp::endpoint& endpoint) {
  error_code error;
  tcp::acceptor acceptor(net::make_strand(io));
  if (acceptor.open(endpoint.protocol(), error); error) return error;
  if (acceptor.set_option(net::socket_base::reuse_address(true), error); error) return error;
  if (acceptor.bind(endpoint, error); error) return error;
  if (acceptor.listen(net::socket_base::max_listen_connections, error); error) return error;
  port = acceptor.local_endpoint().port();
  acceptors.push_back(std::move(acceptor));
  return error;
}

absl::Status HttpFront::Impl::Listen() {
  const HttpOptions& options = shared.options;
  std::string host = options.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  for (const auto& entry : found) {
    tcp::endpoint endpoint = entry.endpoint();
    if (options.port == 0) endpoint.port(uint16_t(port));  // all addresses of a name share the port of the first
    if (error = Bind(endpoint); error == net::error::address_in_use) break;
  }
  if (acceptors.empty() || error == net::error::address_in_use) {
    return absl::UnavailableError(
        absl::StrFormat("can't listen on %s:%d: %s; choose another address with --http-host and --http-port",
                        options.host, options.port, error.message()));
  }
  return absl::OkStatus();
}

void HttpFront::Impl::Adopt(tcp::socket socket) {
  NoticeVanishedPeers(socket);
  uint64_t id;
  {
    absl::MutexLock lock(&mutex);
    if (int(sessions.size()) >= shared.options.connections) return TurnAway(std::move(socket));
    id = next_session++;
    sessions[id];
  }
  std::weak_ptr<HttpSession> session = StartSession(std::move(socket), &shared, tls ? &*tls : nullptr, [this, id] {
    absl::MutexLock lock(&mutex);
    sessions.erase(id);
  });
  absl::MutexLock lock(&mutex);
  if (auto it = sessions.find(id); it != sessions.end()) it->second = std::move(session);
}

net::awaitable<void> HttpFront::Impl::Accept(tcp::acceptor* acceptor) {
  while (!shared.draining) {
    error_code error;
    tcp::socket socket =
        co_await acceptor->async_accept(net::make_strand(io), net::redirect_error(net::use_awaitable, error));
    if (error == net::error::operation_aborted || error == net::error::bad_descriptor) co_return;
    if (!error) {
      Adopt(std::move(socket));
      continue;
    }
    // Such as no more file descriptors: some will be free in a moment.
    LOG_EVERY_N(WARNING, 100) << "can't accept an HTTP connection: " << error.message();
    net::steady_timer pause(acceptor->get_executor(), std::chrono::milliseconds(50));
    co_await pause.async_wait(net::redirect_error(net::use_awaitable, error));
  }
}

absl::StatusOr<std::unique_ptr<HttpFront>> HttpFront::Start(const HttpOptions& options, Calls* calls) {
  auto impl = std::make_unique<Impl>(options, calls);
  if (absl::Status status = impl->ReadTls(); !status.ok()) return status;
  if (absl::Status status = impl->Listen(); !status.ok()) return status;
  for (tcp::acceptor& acceptor : impl->acceptors) {
    net::co_spawn(acceptor.get_executor(), impl->Accept(&acceptor), net::detached);
  }
  for (int i = 0; i < kThreads; ++i) {
    impl->threads.emplace_back([io = &impl->io, work = net::make_work_guard(impl->io)] { io->run(); });
  }
  return std::unique_ptr<HttpFront>(new HttpFront(std::move(impl)));
}

HttpFront::HttpFront(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpFront::~HttpFront() {
  Stop(absl::ZeroDuration());
}

int HttpFront::port() const {
  return impl_->port;
}

void HttpFront::SetReady(bool ready) {
  impl_->shared.ready = ready;
}

void HttpFront::Drain() {
  if (impl_->shared.draining.exchange(true)) return;
  for (tcp::acceptor& acceptor : impl_->acceptors) {
    net::post(acceptor.get_executor(), [&acceptor] {
      error_code ignored;
      acceptor.close(ignored);
    });
  }
  std::vector<std::shared_ptr<HttpSession>> open;
  {
    absl::MutexLock lock(&impl_->mutex);
    for (const auto& [id, session] : impl_->sessions) open.push_back(session.lock());
  }
  for (const auto& session : open) {
    if (session != nullptr) session->Drain();
  }
}

void HttpFront::Stop(absl::Duration grace) {
  Drain();
  if (impl_->threads.empty()) return;
  const auto empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(impl_->mutex) { return impl_->sessions.empty(); };
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->mutex.AwaitWithTimeout(absl::Condition(&empty), grace);
  }
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

}  // namespace sluice::router
