// The bytes of one client's connection, with TLS or without.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <utility>

namespace sluice::router {

class Connection {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;

  // tls: null without; it must outlive the connection.
  Connection(Socket socket, boost::asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  bool encrypted() const { return tls_.has_value(); }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto handler, const Buffers& to) {
          if (tls_) return tls_->async_read_some(to, std::move(handler));
          socket_.async_read_some(to, std::move(handler));
        },
        token, buffers);
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto handler, const Buffers& from) {
          if (tls_) return tls_->async_write_some(from, std::move(handler));
          socket_.async_write_some(from, std::move(handler));
        },
        token, buffers);
  }

  // REQUIRES: encrypted().
  template <typename Token>
  auto Handshake(Token&& token) {
    return tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  template <typename Token>
  auto SayGoodbye(Token&& token) {
    return tls_->async_shutdown(std::forward<Token>(token));
  }

 private:
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace sluice::router
