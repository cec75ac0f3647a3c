#include "router/http/session.h"

#include <glog/logging.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "router/event_loop.h"
#include "router/http/connection.h"
#include "router/http/error.h"
#include "router/http/head.h"
#include "router/http/running_answer.h"

namespace sluice::router {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 4096;
constexpr size_t kPipelinedBytes = size_t{64} << 10;  // read ahead while a request is answered
constexpr size_t kBufferBytes = size_t{256} << 10;
constexpr auto kPollPeriod = std::chrono::milliseconds(200);
constexpr absl::Duration kLinger = absl::Seconds(2);
std::string_view View(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

// g++ 12 miscompiles coroutines that are lambdas, and a co_await in an expression with temporaries that need a
// destructor or in a condition. So coroutines only wait here: plain functions put what is to be sent into `out_`, and
// every co_await stands alone.
class Session final : public HttpSession, public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, HttpShared* shared, net::ssl::context* tls)
      : shared_(*shared),
        connection_(std::move(socket), tls),
        deadline_timer_(connection_.get_executor()),
        wake_timer_(connection_.get_executor()),
        poll_timer_(connection_.get_executor()),
        buffer_(kBufferBytes) {}

  net::any_io_executor Executor() { return connection_.get_executor(); }
  net::awaitable<void> Run(std::shared_ptr<Session> self);
  void Drain() override;

 private:
  // Coroutines.
  net::awaitable<void> Greet();        // of TLS
  net::awaitable<bool> ReadRequest();  // false: the connection ends, with `out_` as its last words
  net::awaitable<void> Deliver();      // `answer_`
  net::awaitable<void> Write();        // `out_`
  net::awaitable<void> Wait();         // for the next Wake, also one that has been already
  net::awaitable<void> Linger();

  // What a request gets.
  bool MeetExpectation();  // false: refused
  void AnswerBrokenRequest(error_code error);
  void TakeHead();
  void Answer();
  void Start(const ApiRequest& request, absl::Time received);
  bool Collect();  // what `answer_` has to say so far; true at its end
  void Reply(HttpReply reply);

  // The client's presence, while its request is answered.
  void Watch();
  void Poll();
  void StopWatching();
  void Gone();

  void Wake();
  void SetDeadline(absl::Duration after);
  void NoDeadline() { deadline_ = Clock::time_point::max(); }
  void ArmDeadline();
  void Close();

  HttpShared& shared_;
  Connection connection_;
  net::steady_timer deadline_timer_;
  net::steady_timer wake_timer_;
  net::steady_timer poll_timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point armed_ = Clock::time_point::max();

  boost::beast::flat_buffer buffer_;  // received, not parsed
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpHead head_;
  HttpFields cors_;  // of the running request
  std::string out_;  // to be sent

  std::unique_ptr<RunningAnswer> answer_;  // of the running request; null: none
  bool head_sent_ = false;
  std::string body_;  // of an answer that isn't streamed

  bool idle_ = false;  // between two requests
  bool woken_ = false;
  bool watching_ = false;
  bool watch_pending_ = false;
  bool gone_ = false;
};

// ---- the connection ----

net::awaitable<void> Session::Run([[maybe_unused]] std::shared_ptr<Session> self) {
  if (connection_.encrypted()) co_await Greet();
  bool open = !gone_;
  while (open) {
    open = co_await ReadRequest();
    if (open) Answer();
    if (answer_ != nullptr) co_await Deliver();
    if (!out_.empty() && !gone_) co_await Write();
    open = open && !gone_ && head_.keep_alive;
  }
  if (!gone_ && !shared_.draining) co_await Linger();
  Close();
}

net::awaitable<void> Session::Greet() {
  error_code error;
  SetDeadline(shared_.options.receive);
  co_await connection_.Handshake(net::redirect_error(net::use_awaitable, error));
  NoDeadline();
  if (error) gone_ = true;
}

void Session::Drain() {
  net::post(connection_.get_executor(), [self = shared_from_this()] {
    if (self->idle_) self->Close();
  });
}

void Session::Close() {
  error_code ignored;
  connection_.socket().close(ignored);
  deadline_timer_.cancel();
  NoDeadline();
}

// Closing a socket with unread bytes would reset the connection, and the client might never see its answer.
net::awaitable<void> Session::Linger() {
  error_code error;
  SetDeadline(kLinger);
  if (connection_.encrypted()) co_await connection_.SayGoodbye(net::redirect_error(net::use_awaitable, error));
  if (error) co_return;
  connection_.socket().shutdown(tcp::socket::shutdown_send, error);
  buffer_.clear();
  while (!error) {
    co_await connection_.socket().async_read_some(buffer_.prepare(kReadBytes),
                                                  net::redirect_error(net::use_awaitable, error));
  }
}

void Session::SetDeadline(absl::Duration after) {
  deadline_ = Clock::now() + absl::ToChronoMilliseconds(after);
  if (deadline_ < armed_) ArmDeadline();
}

// The timer may fire early and is then armed again, so that moving the deadline costs nothing.
void Session::ArmDeadline() {
  armed_ = deadline_;
  deadline_timer_.expires_at(armed_);
  deadline_timer_.async_wait([weak = weak_from_this()](error_code error) {
    const std::shared_ptr<Session> self = weak.lock();
    if (error || self == nullptr) return;
    self->armed_ = Clock::time_point::max();
    if (Clock::now() >= self->deadline_) {
      self->Close();
    } else if (self->deadline_ != Clock::time_point::max()) {
      self->ArmDeadline();
    }
  });
}

void Session::Wake() {
  woken_ = true;
  wake_timer_.cancel();
}

net::awaitable<void> Session::Wait() {
  error_code ignored;
  while (!woken_) {
    wake_timer_.expires_at(Clock::time_point::max());
    co_await wake_timer_.async_wait(net::redirect_error(net::use_awaitable, ignored));
  }
  woken_ = false;
}

net::awaitable<void> Session::Write() {
  error_code error;
  const bool slow = answer_ != nullptr && answer_->too_slow();
  SetDeadline(slow ? shared_.options.slow_grace : shared_.options.send);
  co_await net::async_write(connection_, net::buffer(out_), net::redirect_error(net::use_awaitable, error));
  NoDeadline();
  out_.clear();
  if (error) gone_ = true;
}

// ---- reading ----

net::awaitable<bool> Session::ReadRequest() {
  error_code error;
  head_ = HttpHead();
  parser_.emplace();
  parser_->header_limit(uint32_t(shared_.options.header_bytes));
  parser_->body_limit(shared_.options.body_bytes);
  if (buffer_.size() == 0) {
    if (shared_.draining) co_return false;
    idle_ = true;
    SetDeadline(shared_.options.idle);
    const size_t count = co_await connection_.async_read_some(buffer_.prepare(kReadBytes),
                                                              net::redirect_error(net::use_awaitable, error));
    idle_ = false;
    buffer_.commit(count);
    if (error) gone_ = true;
    if (error) co_return false;
  }
  SetDeadline(shared_.options.receive);
  co_await http::async_read_header(connection_, buffer_, *parser_, net::redirect_error(net::use_awaitable, error));
  if (!error) {
    if (!MeetExpectation()) co_return false;
    if (!out_.empty()) co_await Write();
    SetDeadline(shared_.options.receive);
    co_await http::async_read(connection_, buffer_, *parser_, net::redirect_error(net::use_awaitable, error));
  }
  NoDeadline();
  if (error) AnswerBrokenRequest(error);
  co_return !error;
}

bool Session::MeetExpectation() {
  const auto& request = parser_->get();
  const auto expect = request.find(http::field::expect);
  if (expect == request.end() || request.version() < 11) return true;
  if (boost::beast::iequals(expect->value(), "100-continue")) {
    if (!parser_->is_done()) out_ = "HTTP/1.1 100 Continue\r\n\r\n";
    return true;
  }
  Reply({417, ErrorBody(417, "Expect: only 100-continue is supported")});
  return false;
}

void Session::AnswerBrokenRequest(error_code error) {
  const HttpOptions& options = shared_.options;
  if (error == http::error::body_limit) {
    Reply({413, ErrorBody(413, absl::StrFormat("the body may have at most %d bytes", options.body_bytes))});
  } else if (error == http::error::header_limit) {
    Reply({431, ErrorBody(431, absl::StrFormat("the headers may have at most %d bytes", options.header_bytes))});
  } else if (error.category() == make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message) {
    Reply({400, ErrorBody(400, absl::StrCat("malformed HTTP: ", error.message()))});
  } else {
    gone_ = true;  // the client closed the connection, or took too long
  }
}

void Session::TakeHead() {
  const auto& request = parser_->get();
  head_.http10 = request.version() < 11;
  head_.keep_alive = request.keep_alive();
  head_.is_head = request.method() == http::verb::head;
  cors_ = CorsFields(shared_.options, View(request[http::field::origin]));
}

// ---- answering ----

void Session::Answer() {
  const absl::Time received = MonotonicNow();
  TakeHead();
  const auto& request = parser_->get();
  HttpMessage message{View(request.method_string()), View(request.target()), request.body(),
                      [&request](std::string_view name) { return View(request[name]); }, ""};
  const absl::Status id = TakeRequestId(message, shared_.calls->Draw());
  head_.request_id = message.request_id;
  VLOG(1) << "http: " << message.method << " " << PathOf(message.target) << " " << head_.request_id;
  std::variant<HttpReply, ApiRequest> outcome = id.ok() ? Handle(shared_, message) : ErrorReply(id);
  parser_.reset();  // a long prompt need not wait in it
  if (HttpReply* reply = std::get_if<HttpReply>(&outcome)) return Reply(*std::move(reply));
  Start(std::get<ApiRequest>(outcome), received);
}

void Session::Start(const ApiRequest& request, absl::Time received) {
  const AnswerNames names{head_.request_id, shared_.calls->model().name, absl::ToUnixSeconds(absl::Now())};
  const auto wake = [weak = weak_from_this()] {
    const std::shared_ptr<Session> self = weak.lock();
    if (self == nullptr) return;
    net::post(self->connection_.get_executor(), [self] {
      // A client that never reads again doesn't hold up its connection's end.
      if (self->answer_ != nullptr && self->answer_->too_slow()) self->SetDeadline(self->shared_.options.slow_grace);
      self->Wake();
    });
  };
  auto started = RunningAnswer::Start(shared_.calls, request, names, shared_.options.outbox_bytes, received, wake);
  if (!started.ok()) return Reply(ErrorReply(started.status()));
  answer_ = *std::move(started);
  head_sent_ = false;
  body_.clear();
  if (request.stream && head_.http10) head_.keep_alive = false;  // the end of the connection ends the answer
}

net::awaitable<void> Session::Deliver() {
  watching_ = true;
  Watch();
  bool ended = false;
  while (!ended && !gone_) {
    ended = Collect();
    if (!out_.empty()) {
      co_await Write();
    } else if (!ended) {
      co_await Wait();
    }
  }
  answer_.reset();
  StopWatching();
  while (watch_pending_) co_await Wait();
}

bool Session::Collect() {
  RunningAnswer::News news = answer_->Take();
  const bool ended = news.end.has_value();
  const bool failed = ended && !news.end->ok();
  if (failed && !head_sent_) {
    Reply(ErrorReply(*news.end, news.retry_after));
    return true;
  }
  if (!answer_->stream()) {
    body_ += news.bytes;  // the end may come later than the last response
    if (ended) Reply({200, std::exchange(body_, "")});
    return ended;
  }
  if (failed) news.bytes += SseError(*news.end);
  if (!news.bytes.empty() && !std::exchange(head_sent_, true)) {
    if (shared_.draining) head_.keep_alive = false;
    HttpFields fields = cors_;
    if (!head_.http10) fields.emplace_back("Transfer-Encoding", "chunked");
    out_ = HeadBytes(head_, 200, "text/event-stream; charset=utf-8", fields);
  }
  if (head_.http10) {
    out_ += news.bytes;
  } else {
    if (!news.bytes.empty()) absl::StrAppend(&out_, absl::Hex(news.bytes.size()), "\r\n", news.bytes, "\r\n");
    if (ended) out_ += "0\r\n\r\n";
  }
  return ended;
}

void Session::Reply(HttpReply reply) {
  if (shared_.draining) head_.keep_alive = false;
  reply.fields.insert(reply.fields.end(), cors_.begin(), cors_.end());
  if (reply.code != 204) reply.fields.emplace_back("Content-Length", absl::StrCat(reply.body.size()));
  out_ = HeadBytes(head_, reply.code, reply.type, reply.fields);
  if (!head_.is_head) out_ += reply.body;
}

// ---- the client's presence ----

// A read is pending while a request is answered: only a read notices that the client closed its connection. What it
// reads is the next request of a client that doesn't wait.
void Session::Watch() {
  if (!watching_) return;
  if (buffer_.size() >= kPipelinedBytes) return Poll();
  watch_pending_ = true;
  connection_.async_read_some(buffer_.prepare(kReadBytes), [self = shared_from_this()](error_code error, size_t count) {
    self->watch_pending_ = false;
    self->buffer_.commit(count);
    if (!error) {
      self->Watch();
    } else if (error != net::error::operation_aborted) {
      self->Gone();
    }
    self->Wake();
  });
}

// When the client has sent too much to read on.
void Session::Poll() {
  watch_pending_ = true;
  poll_timer_.expires_after(kPollPeriod);
  poll_timer_.async_wait([self = shared_from_this()](error_code) {
    self->watch_pending_ = false;
    pollfd peer{self->connection_.socket().native_handle(), POLLRDHUP, 0};
    if (self->watching_ && poll(&peer, 1, 0) > 0) self->Gone();
    if (self->watching_) self->Poll();
    self->Wake();
  });
}

void Session::StopWatching() {
  watching_ = false;
  poll_timer_.cancel();
  error_code ignored;
  if (watch_pending_) connection_.socket().cancel(ignored);
}

void Session::Gone() {
  gone_ = true;
  watching_ = false;
  if (answer_ != nullptr) answer_->Cancel();
  Close();  // ends a write that is under way, too
}

}  // namespace

std::shared_ptr<HttpSession> StartSession(tcp::socket socket, HttpShared* shared, net::ssl::context* tls,
                                          std::function<void()> ended) {
  auto session = std::make_shared<Session>(std::move(socket), shared, tls);
  const auto executor = session->Executor();
  net::co_spawn(executor, session->Run(session), [ended = std::move(ended)](const std::exception_ptr& thrown) {
    if (thrown != nullptr) LOG(ERROR) << "an HTTP session ended with an exception";
    ended();
  });
  return session;
}

}  // namespace sluice::router
