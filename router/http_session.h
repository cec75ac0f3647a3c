// One HTTP connection: reads requests, answers them one after the other, and notices when its client is gone.
//
// Everything of a session runs on its strand; only Close and the wake-ups of its call come from elsewhere. It lives as
// long as its coroutine.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "router/calls.h"
#include "router/http_front.h"

namespace sluice::router {

// What the sessions of a front share.
struct HttpShared {
  HttpOptions options;
  Calls* calls = nullptr;
  int64_t started = 0;  // seconds since 1970
  std::atomic<bool> ready = false;
  std::atomic<bool> draining = false;
};

class HttpSession {
 public:
  virtual ~HttpSession() = default;
  virtual void Drain() = 0;  // closes it when it has no request; from any thread
};

// Serves the connection, whose executor must be a strand. `shared` must outlive the session; `ended` runs when it is
// over.
std::shared_ptr<HttpSession> StartSession(boost::asio::ip::tcp::socket socket, HttpShared* shared,
                                          std::function<void()> ended);

}  // namespace sluice::router
