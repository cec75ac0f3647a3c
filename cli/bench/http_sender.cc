#include "cli/bench/http_sender.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/bench/sse.h"
#include "cli/channel.h"
#include "nlohmann/json.hpp"

namespace sluice::cli::bench {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;

constexpr size_t kReadBytes = size_t{16} << 10;

struct Connection {
  explicit Connection(net::io_context& io) : socket(io) {}
  tcp::socket socket;
  boost::beast::flat_buffer buffer;
};

// What calls share; touched by the one thread only, but for `idle` before it runs.
struct Shared {
  SenderOptions options;
  HttpApi api = HttpApi::kCompletions;
  std::string host_header, model, authorization;
  net::io_context io;
  tcp::resolver::results_type endpoints;
  std::vector<std::unique_ptr<Connection>> idle;
  std::unordered_set<class HttpCall*> calls;
};

// One request. It deletes itself when no handler is left that knows it.
class HttpCall : public std::enable_shared_from_this<HttpCall> {
 public:
  HttpCall(Shared* shared, Recorder* recorder, int index)
      : shared_(*shared), recorder_(*recorder), index_(index), timer_(shared->io) {}

  void Start(std::string body) {
    shared_.calls.insert(this);
    request_.method(http::verb::post);
    request_.target(HttpPath(shared_.api));
    request_.version(11);
    request_.set(http::field::host, shared_.host_header);
    request_.set(http::field::content_type, "application/json");
    if (!shared_.authorization.empty()) request_.set(http::field::authorization, shared_.authorization);
    request_.body() = std::move(body);
    request_.prepare_payload();
    if (shared_.options.timeout_s > 0) {
      timer_.expires_after(std::chrono::microseconds(int64_t(shared_.options.timeout_s * 1e6)));
      timer_.async_wait([self = shared_from_this()](error_code error) {
        if (!error) self->Abandon("it took longer than --timeout");
      });
    }
    Begin();
  }

  void Abandon(const std::string& why) { End(Outcome::kAbandoned, why); }

 private:
  void Begin();
  void Write();
  void ReadHead();
  void ReadSome();
  void TakeBody(size_t bytes);
  void TakeEvent(const std::string& data);
  void BodyEnded();
  void Broken(const char* doing, error_code error);
  void End(Outcome outcome, const std::string& error);

  Shared& shared_;
  Recorder& recorder_;
  const int index_;
  net::steady_timer timer_;
  std::unique_ptr<Connection> connection_;
  bool reused_ = false;  // it may have been closed by the server meanwhile: then once more on a new one
  bool ended_ = false;
  http::request<http::string_body> request_;
  std::optional<http::response_parser<http::buffer_body>> parser_;
  char bytes_[kReadBytes];
  SseParser events_;
  std::string error_body_;
  std::string stream_error_;
  Counted counted_;
  bool done_ = false;
};

void HttpCall::Begin() {
  parser_.emplace();
  parser_->body_limit(boost::none);
  if (!shared_.idle.empty()) {
    connection_ = std::move(shared_.idle.back());
    shared_.idle.pop_back();
    reused_ = true;
    return Write();
  }
  reused_ = false;
  connection_ = std::make_unique<Connection>(shared_.io);
  net::async_connect(connection_->socket, shared_.endpoints,
                     [self = shared_from_this()](error_code error, const tcp::endpoint&) {
                       if (self->ended_) return;
                       if (error) return self->Broken("connect", error);
                       error_code ignored;
                       self->connection_->socket.set_option(tcp::no_delay(true), ignored);
                       self->Write();
                     });
}

void HttpCall::Write() {
  http::async_write(connection_->socket, request_, [self = shared_from_this()](error_code error, size_t) {
    if (self->ended_) return;
    if (error) return self->Broken("write", error);
    self->ReadHead();
  });
}

void HttpCall::ReadHead() {
  http::async_read_header(connection_->socket, connection_->buffer, *parser_,
                          [self = shared_from_this()](error_code error, size_t) {
                            if (self->ended_) return;
                            if (error) return self->Broken("read", error);
                            self->reused_ = false;
                            self->ReadSome();
                          });
}

void HttpCall::ReadSome() {
  if (parser_->is_done()) return BodyEnded();
  parser_->get().body().data = bytes_;
  parser_->get().body().size = kReadBytes;
  http::async_read_some(connection_->socket, connection_->buffer, *parser_,
                        [self = shared_from_this()](error_code error, size_t) {
                          if (self->ended_) return;
                          if (error == http::error::need_buffer) error = {};
                          if (error) return self->Broken("read", error);
                          self->TakeBody(kReadBytes - self->parser_->get().body().size);
                          self->ReadSome();
                        });
}

void HttpCall::TakeBody(size_t bytes) {
  if (parser_->get().result() != http::status::ok) {
    if (error_body_.size() < kReadBytes) error_body_.append(bytes_, bytes);
    return;
  }
  for (const std::string& data : events_.Add({bytes_, bytes})) TakeEvent(data);
}

void HttpCall::TakeEvent(const std::string& data) {
  const absl::StatusOr<HttpEvent> event = ReadHttpEvent(data);
  if (!event.ok()) {
    stream_error_ = std::string(event.status().message());
    return;
  }
  if (!event->error.empty()) stream_error_ = event->error;
  done_ = done_ || event->done;
  if (event->text) recorder_.Tokens(index_, Clock::now(), 1);
  if (event->prompt_tokens >= 0) {
    counted_ = {event->prompt_tokens, event->cached_tokens, event->completion_tokens};
  }
}

void HttpCall::BodyEnded() {
  const int status = int(parser_->get().result_int());
  const bool keep = parser_->get().keep_alive();
  if (keep) shared_.idle.push_back(std::move(connection_));
  if (status == 504) return End(Outcome::kAbandoned, HttpErrorText(status, error_body_));
  if (status != 200) return End(Outcome::kFailed, HttpErrorText(status, error_body_));
  if (!stream_error_.empty()) return End(Outcome::kFailed, stream_error_);
  if (!done_) return End(Outcome::kFailed, "the stream ended without [DONE]");
  End(Outcome::kDone, "");
}

void HttpCall::Broken(const char* doing, error_code error) {
  if (reused_) return Begin();
  End(Outcome::kFailed, absl::StrCat(doing, ": ", error.message()));
}

void HttpCall::End(Outcome outcome, const std::string& error) {
  if (ended_) return;
  ended_ = true;
  recorder_.Ended(index_, Clock::now(), outcome, error, counted_);
  timer_.cancel();
  if (connection_ != nullptr) {
    error_code ignored;
    connection_->socket.close(ignored);
  }
  shared_.calls.erase(this);
}

class HttpSender final : public Sender {
 public:
  explicit HttpSender(std::unique_ptr<Shared> shared)
      : shared_(std::move(shared)), guard_(shared_->io.get_executor()), thread_([this] { shared_->io.run(); }) {}
  ~HttpSender() override {
    net::post(shared_->io, [this] {
      Abandon();
      shared_->idle.clear();
    });
    guard_.reset();
    thread_.join();
  }

  absl::StatusOr<TargetInfo> Ask() override;
  void Start(Recorder& recorder, int index, const PlannedRequest& request) override;
  void CancelAll() override {
    net::post(shared_->io, [this] { Abandon(); });
  }

 private:
  void Abandon() {
    std::vector<std::shared_ptr<HttpCall>> calls;  // ending one takes it out of the set
    for (HttpCall* call : shared_->calls) calls.push_back(call->shared_from_this());
    for (const auto& call : calls) call->Abandon("interrupted");
  }
  // A request that waits for its answer; on the caller's thread.
  absl::StatusOr<std::pair<int, std::string>> Exchange(http::verb verb, const char* target, const std::string& body);

  std::unique_ptr<Shared> shared_;
  net::executor_work_guard<net::io_context::executor_type> guard_;
  std::thread thread_;
};

absl::StatusOr<std::pair<int, std::string>> HttpSender::Exchange(http::verb verb, const char* target,
                                                                 const std::string& body) {
  net::io_context io;
  boost::beast::tcp_stream stream(io);
  error_code error;
  stream.connect(shared_->endpoints, error);
  http::request<http::string_body> request(verb, target, 11);
  request.set(http::field::host, shared_->host_header);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  if (!shared_->authorization.empty()) request.set(http::field::authorization, shared_->authorization);
  request.body() = body;
  request.prepare_payload();
  if (!error) http::write(stream, request, error);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  if (!error) http::read(stream, buffer, response, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("nobody answers HTTP at ", shared_->options.address, " (",
                                               error.message(),
                                               "); name the router's HTTP port with --http HOST:PORT"));
  }
  return std::pair<int, std::string>(int(response.result_int()), response.body());
}

absl::StatusOr<TargetInfo> HttpSender::Ask() {
  const auto models = Exchange(http::verb::get, "/v1/models", "");
  if (!models.ok()) return models.status();
  TargetInfo info;
  const nlohmann::json body = nlohmann::json::parse(models->second, nullptr, false);
  if (models->first != 200 || !body.is_object() || !body.contains("data") || !body["data"].is_array() ||
      body["data"].empty() || !body["data"][0].is_object()) {
    return absl::UnavailableError(HttpErrorText(models->first, models->second));
  }
  info.model = body["data"][0].value("id", "");
  info.context = body["data"][0].value("max_model_len", 0);
  shared_->model = info.model;  // nothing runs yet
  // As over gRPC: the refusal of an id that no vocabulary has says how many there are.
  const nlohmann::json probe = {
      {"prompt", {std::numeric_limits<int32_t>::max()}}, {"max_tokens", 1}, {"model", info.model}};
  const auto refused = Exchange(http::verb::post, HttpPath(HttpApi::kCompletions), probe.dump());
  if (refused.ok()) info.vocabulary = VocabularyOf(refused->second);
  return info;
}

void HttpSender::Start(Recorder& recorder, int index, const PlannedRequest& request) {
  const SenderOptions& options = shared_->options;
  std::string body = HttpBody(shared_->api, {shared_->model, request.prompt, request.max_tokens, options.temperature,
                                             options.seed + uint64_t(index), options.ignore_eos});
  net::post(shared_->io, [this, &recorder, index, body = std::move(body)]() mutable {
    std::make_shared<HttpCall>(shared_.get(), &recorder, index)->Start(std::move(body));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sender>> OpenHttpSender(HttpApi api, const SenderOptions& options) {
  const size_t colon = options.address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("--http: \"", options.address, "\" is not HOST:PORT"));
  }
  auto shared = std::make_unique<Shared>();
  shared->options = options;
  shared->api = api;
  shared->host_header = options.address;
  if (const std::string key = ApiKey(); !key.empty()) shared->authorization = absl::StrCat("Bearer ", key);
  std::string host = options.address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  error_code error;
  shared->endpoints = tcp::resolver(shared->io).resolve(host, options.address.substr(colon + 1), error);
  if (error) return absl::UnavailableError(absl::StrCat("--http: ", options.address, ": ", error.message()));
  return std::make_unique<HttpSender>(std::move(shared));
}

}  // namespace sluice::cli::bench
