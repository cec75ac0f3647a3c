#include "router/http_session.h"

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
#include "router/http_answer.h"
#include "router/http_call.h"
#include "router/http_error.h"
#include "router/http_head.h"
#include "router/http_request.h"
#include "router/metrics.h"

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
  Session(tcp::socket socket, HttpShared* shared)
      : shared_(*shared),
        socket_(std::move(socket)),
        deadline_timer_(socket_.get_executor()),
        wake_timer_(socket_.get_executor()),
        poll_timer_(socket_.get_executor()),
        buffer_(kBufferBytes) {}
  ~Session() override { CancelCall(); }

  net::any_io_executor Executor() { return socket_.get_executor(); }
  net::awaitable<void> Run(std::shared_ptr<Session> self);
  void Drain() override;

 private:
  // Coroutines.
  net::awaitable<bool> ReadRequest();  // false: the connection ends, with `out_` as its last words
  net::awaitable<void> Deliver();      // the answer of `call_`
  net::awaitable<void> Write();        // `out_`
  net::awaitable<void> Wait();         // for the next Wake, also one that has been already
  net::awaitable<void> Linger();

  // What a request gets.
  bool MeetExpectation();  // false: refused
  void AnswerBrokenRequest(error_code error);
  absl::Status TakeHead();
  void Route();
  void AnswerGet(const std::string& path);
  void Complete();
  void StartCall(CompletionRequest request, absl::Time received);
  bool Collect();  // what `call_` has to say so far; true at its end

  void AnswerMetrics();
  void Reply(int code, const std::string& body, HttpFields more = {}, const char* type = "application/json");
  void ReplyError(const absl::Status& status, absl::Duration retry_after = absl::ZeroDuration());

  // The client's presence, while its request is answered.
  void Watch();
  void Poll();
  void StopWatching();
  void Gone();
  void CancelCall();

  void Wake();
  void SetDeadline(absl::Duration after);
  void NoDeadline() { deadline_ = Clock::time_point::max(); }
  void ArmDeadline();
  void Close();

  HttpShared& shared_;
  tcp::socket socket_;
  net::steady_timer deadline_timer_;
  net::steady_timer wake_timer_;
  net::steady_timer poll_timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point armed_ = Clock::time_point::max();

  boost::beast::flat_buffer buffer_;  // received, not parsed
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpHead head_;
  std::string out_;  // to be sent

  // The running completion.
  std::shared_ptr<HttpCall> call_;
  uint64_t call_id_ = 0;  // 0: none
  std::optional<CompletionAnswer> answer_;
  bool stream_ = false;
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
  bool open = true;
  while (open) {
    open = co_await ReadRequest();
    if (open) Route();
    if (call_ != nullptr) co_await Deliver();
    if (!out_.empty() && !gone_) co_await Write();
    open = open && !gone_ && head_.keep_alive;
  }
  if (!gone_ && !shared_.draining) co_await Linger();
  Close();
}

void Session::Drain() {
  net::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->idle_) self->Close();
  });
}

void Session::Close() {
  error_code ignored;
  socket_.close(ignored);
  deadline_timer_.cancel();
  NoDeadline();
}

// Closing a socket with unread bytes would reset the connection, and the client might never see its answer.
net::awaitable<void> Session::Linger() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  SetDeadline(kLinger);
  buffer_.clear();
  while (!error) {
    co_await socket_.async_read_some(buffer_.prepare(kReadBytes), net::redirect_error(net::use_awaitable, error));
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
  const bool slow = call_ != nullptr && call_->too_slow();
  SetDeadline(slow ? shared_.options.slow_grace : shared_.options.send);
  co_await net::async_write(socket_, net::buffer(out_), net::redirect_error(net::use_awaitable, error));
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
    const size_t count =
        co_await socket_.async_read_some(buffer_.prepare(kReadBytes), net::redirect_error(net::use_awaitable, error));
    idle_ = false;
    buffer_.commit(count);
    if (error) gone_ = true;
    if (error) co_return false;
  }
  SetDeadline(shared_.options.receive);
  co_await http::async_read_header(socket_, buffer_, *parser_, net::redirect_error(net::use_awaitable, error));
  if (!error) {
    if (!MeetExpectation()) co_return false;
    if (!out_.empty()) co_await Write();
    SetDeadline(shared_.options.receive);
    co_await http::async_read(socket_, buffer_, *parser_, net::redirect_error(net::use_awaitable, error));
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
  Reply(417, ErrorBody(417, "Expect: only 100-continue is supported"));
  return false;
}

void Session::AnswerBrokenRequest(error_code error) {
  const HttpOptions& options = shared_.options;
  if (error == http::error::body_limit) {
    Reply(413, ErrorBody(413, absl::StrFormat("the body may have at most %d bytes", options.body_bytes)));
  } else if (error == http::error::header_limit) {
    Reply(431, ErrorBody(431, absl::StrFormat("the headers may have at most %d bytes", options.header_bytes)));
  } else if (error.category() == make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message) {
    Reply(400, ErrorBody(400, absl::StrCat("malformed HTTP: ", error.message())));
  } else {
    gone_ = true;  // the client closed the connection, or took too long
  }
}

// Fills `head_`; not OK when the client's request id is not one.
absl::Status Session::TakeHead() {
  const auto& request = parser_->get();
  head_.http10 = request.version() < 11;
  head_.keep_alive = request.keep_alive();
  head_.is_head = request.method() == http::verb::head;
  const std::string_view id = View(request["x-request-id"]);
  const bool given = IsRequestId(id);
  head_.request_id = given ? std::string(id) : absl::StrFormat("cmpl-%016x", shared_.calls->Draw());
  if (given || id.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("x-request-id: must have at most 256 characters, all of them printable ASCII");
}

// ---- answering ----

void Session::Route() {
  const absl::Status head = TakeHead();
  const auto& request = parser_->get();
  const std::string path(PathOf(View(request.target())));
  VLOG(1) << "http: " << request.method_string() << " " << path << " " << head_.request_id;
  const bool is_completion = path == "/v1/completions";
  if (!is_completion && path != "/v1/models" && path != "/health/live" && path != "/health/ready" &&
      path != "/metrics") {
    return Reply(404, ErrorBody(404,
                                "no such path; there are /v1/completions, /v1/models, /health/live, "
                                "/health/ready and /metrics"));
  }
  const bool is_get = request.method() == http::verb::get || head_.is_head;
  if (is_completion ? request.method() != http::verb::post : !is_get) {
    const std::string allowed = is_completion ? "POST" : "GET, HEAD";
    return Reply(405, ErrorBody(405, absl::StrCat("this path takes ", allowed, " only")), {{"Allow", allowed}});
  }
  if (!head.ok()) return ReplyError(head);
  is_completion ? Complete() : AnswerGet(path);
}

void Session::AnswerGet(const std::string& path) {
  if (path == "/v1/models") {
    const ServedModel& model = shared_.calls->model();
    return Reply(200, ModelsBody(model.name, model.root, model.context_length, shared_.started));
  }
  if (path == "/metrics") return AnswerMetrics();
  if (shared_.options.comes_forward && !shared_.options.comes_forward()) {
    return ReplyError(absl::UnavailableError("the router is stuck"));
  }
  if (path == "/health/live") return Reply(200, "{\"status\":\"live\"}");
  if (shared_.ready && !shared_.draining) return Reply(200, "{\"status\":\"ready\"}");
  ReplyError(absl::UnavailableError("no worker is ready"));
}

void Session::AnswerMetrics() {
  if (!shared_.options.metrics) return ReplyError(absl::NotFoundError("this router has no metrics"));
  const absl::StatusOr<std::string> text = shared_.options.metrics();
  if (!text.ok()) return ReplyError(text.status());
  Reply(200, *text, {}, kMetricsType);
}

void Session::Complete() {
  const absl::Time received = MonotonicNow();
  const auto& message = parser_->get();
  if (const auto encoding = message.find(http::field::content_encoding);
      encoding != message.end() && !boost::beast::iequals(encoding->value(), "identity")) {
    return Reply(415, ErrorBody(415, "the body must not be compressed"));
  }
  absl::StatusOr<CompletionRequest> parsed = ParseCompletion(message.body());
  if (!parsed.ok()) return ReplyError(parsed.status());
  parsed->request.set_request_id(head_.request_id);
  if (const auto parent = FitForTrace(View(message["traceparent"]), kMaxTraceparentBytes); !parent.empty()) {
    const auto state = FitForTrace(View(message["tracestate"]), kMaxTracestateBytes);
    parsed->request.mutable_trace()->set_traceparent(std::string(parent));
    parsed->request.mutable_trace()->set_tracestate(std::string(state));
  }
  parser_.reset();  // a long prompt need not wait in it
  StartCall(*std::move(parsed), received);
}

void Session::StartCall(CompletionRequest request, absl::Time received) {
  // An answer that isn't streamed is taken as it comes: it can't wait for its client.
  const size_t outbox = request.stream ? shared_.options.outbox_bytes : std::numeric_limits<size_t>::max();
  auto call = std::make_shared<HttpCall>(outbox, [weak = weak_from_this()] {
    const std::shared_ptr<Session> self = weak.lock();
    if (self == nullptr) return;
    net::post(self->socket_.get_executor(), [self] {
      // A client that never reads again doesn't hold up its connection's end.
      if (self->call_ != nullptr && self->call_->too_slow()) self->SetDeadline(self->shared_.options.slow_grace);
      self->Wake();
    });
  });
  call_id_ = shared_.calls->Add(call);
  if (absl::Status started = shared_.calls->Start(call_id_, request.request, received); !started.ok()) {
    call_id_ = 0;
    return ReplyError(started);
  }
  call_ = std::move(call);
  const CompletionAnswer::Names names{head_.request_id, shared_.calls->model().name, absl::ToUnixSeconds(absl::Now())};
  answer_.emplace(request, names);
  stream_ = request.stream;
  head_sent_ = false;
  body_.clear();
  if (stream_ && head_.http10) head_.keep_alive = false;  // the end of the connection ends the answer
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
  CancelCall();
  call_.reset();
  StopWatching();
  while (watch_pending_) co_await Wait();
}

bool Session::Collect() {
  const HttpCall::Batch batch = call_->Take();
  std::string bytes;
  for (const pb::GenerateResponse& response : batch.responses) bytes += answer_->Add(response);
  const bool ended = batch.end.has_value();
  const bool failed = ended && !batch.end->ok();
  if (failed && !head_sent_) {
    ReplyError(*batch.end, batch.retry_after);
    return true;
  }
  if (!stream_) {
    body_ += bytes;  // the end may come later than the last response
    if (ended) Reply(200, std::exchange(body_, ""));
    return ended;
  }
  if (failed) bytes += CompletionAnswer::ErrorEvent(*batch.end);
  if (!bytes.empty() && !std::exchange(head_sent_, true)) {
    if (shared_.draining) head_.keep_alive = false;
    HttpFields more;
    if (!head_.http10) more.emplace_back("Transfer-Encoding", "chunked");
    out_ = HeadBytes(head_, 200, "text/event-stream; charset=utf-8", more);
  }
  if (head_.http10) {
    out_ += bytes;
  } else {
    if (!bytes.empty()) absl::StrAppend(&out_, absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
    if (ended) out_ += "0\r\n\r\n";
  }
  return ended;
}

void Session::Reply(int code, const std::string& body, HttpFields more, const char* type) {
  if (shared_.draining) head_.keep_alive = false;
  more.emplace_back("Content-Length", absl::StrCat(body.size()));
  out_ = HeadBytes(head_, code, type, more);
  if (!head_.is_head) out_ += body;
}

void Session::ReplyError(const absl::Status& status, absl::Duration retry_after) {
  const int code = HttpCode(status);
  HttpFields more;
  if (code == 429 || retry_after > absl::ZeroDuration()) {
    more.emplace_back("Retry-After", RetryAfterSeconds(retry_after));
  }
  Reply(code, ErrorBody(status), std::move(more));
}

// ---- the client's presence ----

// A read is pending while a request is answered: only a read notices that the client closed its connection. What it
// reads is the next request of a client that doesn't wait.
void Session::Watch() {
  if (!watching_) return;
  if (buffer_.size() >= kPipelinedBytes) return Poll();
  watch_pending_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBytes), [self = shared_from_this()](error_code error, size_t count) {
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
    pollfd peer{self->socket_.native_handle(), POLLRDHUP, 0};
    if (self->watching_ && poll(&peer, 1, 0) > 0) self->Gone();
    if (self->watching_) self->Poll();
    self->Wake();
  });
}

void Session::StopWatching() {
  watching_ = false;
  poll_timer_.cancel();
  error_code ignored;
  if (watch_pending_) socket_.cancel(ignored);
}

void Session::Gone() {
  gone_ = true;
  watching_ = false;
  CancelCall();
  Close();  // ends a write that is under way, too
}

void Session::CancelCall() {
  if (call_id_ != 0) shared_.calls->Cancel(std::exchange(call_id_, 0), absl::CancelledError("the client is gone"));
}

}  // namespace

std::shared_ptr<HttpSession> StartSession(tcp::socket socket, HttpShared* shared, std::function<void()> ended) {
  auto session = std::make_shared<Session>(std::move(socket), shared);
  const auto executor = session->Executor();
  net::co_spawn(executor, session->Run(session), [ended = std::move(ended)](const std::exception_ptr& thrown) {
    if (thrown != nullptr) LOG(ERROR) << "an HTTP session ended with an exception";
    ended();
  });
  return session;
}

}  // namespace sluice::router
