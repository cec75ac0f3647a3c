#include "kvtransfer/tcp_channel.h"

#include <sys/random.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kvtransfer/tcp_receive_channel.h"
#include "kvtransfer/tcp_send_channel.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/tcp_wire.h"

namespace sluice::kvtransfer {
namespace {

constexpr size_t kEndpointBytes = 2 + kTcpTokenBytes;  // the port, high byte first, and the token
constexpr int kMostWindow = 64;

}  // namespace

absl::StatusOr<TcpReceiver> NewTcpReceiver(const std::string& host, const ChannelLimits& limits,
                                           ArrivalCallback on_arrival) {
  if (limits.window < 1 || limits.window > kMostWindow) {
    return absl::InvalidArgumentError(absl::StrCat("a window of ", limits.window, " pieces; 1 to ", kMostWindow));
  }
  std::string token(kTcpTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) != ssize_t(token.size())) return absl::ErrnoToStatus(errno, "getrandom");
  int port = 0;
  absl::StatusOr<Fd> listener = ListenTcp(host, &port);
  if (!listener.ok()) return listener.status();
  std::string endpoint = {char(port >> 8), char(port & 0xff)};
  endpoint += token;
  return TcpReceiver{
      std::make_unique<TcpReceiveChannel>(limits, *std::move(listener), std::move(token), std::move(on_arrival)),
      std::move(endpoint)};
}

absl::StatusOr<std::unique_ptr<SendChannel>> ConnectTcpSender(const std::string& host, const std::string& endpoint,
                                                              absl::Duration timeout) {
  if (endpoint.size() != kEndpointBytes) {
    return absl::InvalidArgumentError("the endpoint of a TCP channel has another length");
  }
  const int port = int(uint8_t(endpoint[0])) << 8 | int(uint8_t(endpoint[1]));
  const absl::Time deadline = absl::Now() + timeout;
  std::vector<Fd> sockets;
  for (int number = 0; number < kTcpConnections; ++number) {
    absl::StatusOr<Fd> socket = ConnectTcp(host, port, deadline);
    if (!socket.ok()) return socket.status();
    const std::string hello = endpoint.substr(2) + char(number);
    char welcome = 0;
    absl::Status met = SendAll(socket->get(), hello.data(), hello.size(), deadline);
    if (met.ok()) met = ReceiveAll(socket->get(), &welcome, 1, deadline);
    if (met.ok() && welcome != kTcpWelcome) met = absl::UnavailableError("something else answers at the endpoint");
    if (!met.ok()) return met;
    sockets.push_back(*std::move(socket));
  }
  return std::make_unique<TcpSendChannel>(std::move(sockets));
}

}  // namespace sluice::kvtransfer
