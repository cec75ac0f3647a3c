// One HTTP connection: reads requests, answers them one after the other, and notices when its client is gone.
//
// Everything of a session runs on its strand; only Close and the wake-ups of its call come from elsewhere. It lives as
// long as its coroutine.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "router/http/api.h"

namespace sluice::router {

class HttpSession {
 public:
  virtual ~HttpSession() = default;
  virtual void Drain() = 0;  // closes it when it has no request; from any thread
};

// Serves the connection, whose executor must be a strand. `shared` and `tls` (null: without) must outlive the session;
// `ended` runs when it is over.
std::shared_ptr<HttpSession> StartSession(boost::asio::ip::tcp::socket socket, HttpShared* shared,
                                          boost::asio::ssl::context* tls, std::function<void()> ended);

}  // namespace sluice::router
