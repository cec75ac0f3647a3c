// The HTTP API over loopback, with a scripted worker: what clients see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "router/testing/front_world.h"
#include "router/testing/http_client.h"

namespace sluice::router {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

Json Parsed(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << "not JSON: " << text;
  return json.is_discarded() ? Json::object() : json;
}

// The JSON of an event stream; a null at its end stands for [DONE].
std::vector<Json> Events(const std::string& body) {
  std::vector<Json> events;
  const std::vector<std::string> parts = absl::StrSplit(body, "\n\n", absl::SkipEmpty());
  for (const std::string& event : parts) {
    EXPECT_THAT(event, StartsWith("data: "));
    events.push_back(event == "data: [DONE]" ? Json() : Parsed(event.substr(6)));
  }
  return events;
}

std::string Text(const std::vector<Json>& events) {
  std::string text;
  for (const Json& event : events) {
    if (event.contains("choices") && !event["choices"].empty()) text += event["choices"][0]["text"].get<std::string>();
  }
  return text;
}

std::string Body(int max_tokens, bool stream = false, const std::string& more = "") {
  return absl::StrFormat(R"({"model": "tiny", "prompt": "hello", "max_tokens": %d, "stream": %s%s})", max_tokens,
                         stream ? "true" : "false", more);
}

class HttpFrontTest : public FrontWorld {
 protected:
  void Start(ServerOptions options = {}) {
    options.http.port = 0;
    StartRouter(options);
  }
  std::unique_ptr<HttpClient> Connect(int receive_buffer = 0) {
    return std::make_unique<HttpClient>(router_->http_port(), receive_buffer);
  }
  HttpAnswer Post(const std::string& body, const std::string& headers = "") { return Connect()->Post(body, headers); }
  HttpAnswer Get(const std::string& path) { return Connect()->Call("GET", path); }

  FakeScript Saying(const std::string& text) {
    FakeScript script;
    script.ids = model_->Encode(text);
    return script;
  }
};

TEST_F(HttpFrontTest, AnswersWhole) {
  Start();
  auto worker = StartWorker(Saying("abc"));
  const HttpAnswer answer = Post(Body(7), "X-Request-Id: mine\r\n");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(answer.headers.at("x-request-id"), "mine");
  const Json body = Parsed(answer.body);
  EXPECT_EQ(body["id"], "mine");
  EXPECT_EQ(body["model"], model_->served().name);
  EXPECT_THAT(body["choices"][0]["text"].get<std::string>(), StartsWith("abc"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 7);
  EXPECT_EQ(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"].get<int>() + 7);
  EXPECT_THAT(Post(Body(1)).headers.at("x-request-id"), StartsWith("cmpl-"));
  ExpectClean(*worker);
}

TEST_F(HttpFrontTest, Streams) {
  Start();
  auto worker = StartWorker(Saying("abc"));
  const HttpAnswer answer = Post(Body(7, true, R"(, "stream_options": {"include_usage": true})"));
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.headers.at("content-type"), StartsWith("text/event-stream"));
  const std::vector<Json> events = Events(answer.body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_THAT(Text(events), StartsWith("abc"));
  EXPECT_TRUE(events.back().is_null());  // [DONE]
  EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], 7);
  EXPECT_EQ(events[events.size() - 3]["choices"][0]["finish_reason"], "length");
  ExpectClean(*worker);
}

TEST_F(HttpFrontTest, WholeAndStreamedTextsAreTheSame) {
  Start();
  auto worker = StartWorker(Saying("a \xc3\xa9 b stop c"));
  const std::string stop = R"(, "stop": ["stop"])";
  const Json whole = Parsed(Post(Body(100, false, stop)).body);
  const std::vector<Json> events = Events(Post(Body(100, true, stop)).body);
  EXPECT_EQ(whole["choices"][0]["text"], "a \xc3\xa9 b ");
  EXPECT_EQ(Text(events), "a \xc3\xa9 b ");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  ExpectClean(*worker);
}

TEST_F(HttpFrontTest, LogprobsHaveOneEntryPerToken) {
  Start();
  FakeScript script = Saying("ab");
  script.top_logprobs = 2;
  auto worker = StartWorker(script);
  const Json logprobs = Parsed(Post(Body(5, false, R"(, "logprobs": 2)")).body)["choices"][0]["logprobs"];
  for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(logprobs[name].size(), 5u) << name;
  }
}

TEST_F(HttpFrontTest, ModelsAndHealth) {
  Start();
  EXPECT_EQ(Get("/health/live").code, 200);
  EXPECT_EQ(Get("/health/ready").code, 503);
  EXPECT_EQ(Post(Body(4)).code, 503);
  auto worker = StartWorker();
  EXPECT_TRUE(Eventually([&] { return Get("/health/ready").code == 200; }));
  const Json model = Parsed(Get("/v1/models?x=1").body)["data"][0];
  EXPECT_EQ(model["id"], model_->served().name);
  EXPECT_EQ(model["root"], "models/tiny.gguf");
  EXPECT_EQ(model["max_model_len"], kContext);
  // Every name that means this model works; so does none.
  for (const std::string& name : {model_->served().name, std::string("tiny"), std::string("tiny.gguf")}) {
    EXPECT_EQ(Post(absl::StrFormat(R"({"model": "%s", "prompt": "x", "max_tokens": 1})", name)).code, 200) << name;
  }
  EXPECT_EQ(Post(R"({"prompt": [5, 6], "max_tokens": 1})").code, 200);
  const auto metrics = Get("/metrics");
  EXPECT_EQ(metrics.code, 200);
  EXPECT_NE(metrics.body.find("sluice_worker_up{role=\"both\""), std::string::npos) << metrics.body;
  worker->Stop(true);
  EXPECT_TRUE(Eventually([&] { return Get("/health/ready").code == 503; }));
}

TEST_F(HttpFrontTest, HealthFollowsTheCoresProgress) {
  std::atomic<bool> forward = true;
  Calls calls(&model_->served(), [](Event) {});
  HttpOptions options;
  options.port = 0;
  options.comes_forward = [&] { return forward.load(); };
  auto front = HttpFront::Start(options, &calls);
  ASSERT_TRUE(front.ok()) << front.status();
  (*front)->SetReady(true);
  HttpClient client((*front)->port());
  EXPECT_EQ(client.Call("GET", "/health/live").code, 200);
  EXPECT_EQ(client.Call("GET", "/health/ready").code, 200);
  forward = false;
  EXPECT_EQ(client.Call("GET", "/health/live").code, 503);
  EXPECT_EQ(client.Call("GET", "/health/ready").code, 503);
  forward = true;
  EXPECT_EQ(client.Call("GET", "/health/ready").code, 200);
}

TEST_F(HttpFrontTest, ABrokenTraceContextIsIgnored) {
  Start();
  auto worker = StartWorker();
  auto client = Connect();
  // What is wrong with a trace context is no client's fault, and no worker's.
  for (const std::string& trace : {std::string("\xff\xfe"), std::string(5000, 'a')}) {
    EXPECT_EQ(client->Post(Body(1), "traceparent: " + trace + "\r\ntracestate: x\r\n").code, 200);
    EXPECT_EQ(client->Post(Body(1), "traceparent: 00-1\r\ntracestate: " + trace + "\r\n").code, 200);
  }
  EXPECT_EQ(worker->reserves(), 4);
}

TEST_F(HttpFrontTest, BadInputGetsItsCodeAndNamesItsField) {
  Start();
  auto worker = StartWorker();
  const std::tuple<std::string, int, std::string> cases[] = {
      {R"({"prompt": "x", "top_p": 1.5})", 400, "top_p"},
      {R"({"prompt": "x", "max_tokens": "5"})", 400, "max_tokens"},
      {R"({"prompt": "x", "n": 17})", 400, "n"},
      {R"({"prompt": ""})", 400, "prompt"},
      {R"({"prompt": [99999999]})", 400, "prompt"},
      {R"({"prompt": "x", "model": "other"})", 404, "model"},
      {R"({"prompt": "x", "max_tokens": 65536})", 400, "max_tokens"},
  };
  auto client = Connect();  // errors of requests keep the connection
  for (const auto& [body, code, param] : cases) {
    const HttpAnswer answer = client->Post(body);
    EXPECT_EQ(answer.code, code) << body;
    const Json error = Parsed(answer.body)["error"];
    EXPECT_EQ(error["param"], param) << body;
    EXPECT_THAT(error["message"].get<std::string>(), StartsWith(param + ": ")) << body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_TRUE(answer.headers.contains("x-request-id"));
  }
  EXPECT_EQ(client->Post("{").code, 400);
  EXPECT_EQ(client->Post(Body(1), "X-Request-Id: a b\r\n").code, 400);
  EXPECT_EQ(client->Post(Body(1), "Content-Encoding: gzip\r\n").code, 415);
  EXPECT_EQ(client->Call("GET", "/v1/nothing").code, 404);
  const HttpAnswer wrong = client->Call("GET", "/v1/completions");
  EXPECT_EQ(wrong.code, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(client->Call("DELETE", "/v1/models").code, 405);
  const HttpAnswer head = client->Call("HEAD", "/v1/models");
  EXPECT_EQ(head.code, 200);
  EXPECT_NE(head.headers.at("content-length"), "0");
  EXPECT_EQ(worker->reserves(), 0);
  EXPECT_EQ(client->Post(Body(3)).code, 200);
}

TEST_F(HttpFrontTest, ErrorsOfTheClusterHaveTheirCodes) {
  ServerOptions options;
  options.core.queue.limit = 1;
  Start(options);
  FakeScript failing;
  failing.tokens = 0;
  failing.fail_after = absl::StatusCode::kInternal;
  auto worker = StartWorker(failing, {.max_running = 1});
  EXPECT_EQ(Post(Body(5)).code, 500);
  EXPECT_EQ(Post(Body(5, true)).code, 500);  // before the first token a stream fails like any other answer
  FakeScript hanging;
  hanging.tokens = 1;
  worker->SetScript(hanging);
  EXPECT_EQ(Post(Body(5, false, R"(, "timeout_ms": 50)")).code, 408);
  ExpectClean(*worker);
  auto running = Connect();
  running->Send(HttpClient::Request("POST", "/v1/completions", Body(5)));
  ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
  auto queued = Connect();
  queued->Send(HttpClient::Request("POST", "/v1/completions", Body(5)));
  ASSERT_TRUE(Eventually([&] { return State().queued() == 1; }));
  const HttpAnswer refused = Post(Body(5));
  EXPECT_EQ(refused.code, 429);
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  EXPECT_EQ(Parsed(refused.body)["error"]["code"], "rate_limit_exceeded");
}

TEST_F(HttpFrontTest, AStreamThatFailsLaterEndsWithAnErrorEvent) {
  Start();
  FakeScript script;
  script.tokens = 2;
  auto worker = StartWorker(script);
  auto client = Connect();
  client->Send(HttpClient::Request("POST", "/v1/completions", Body(5, true)));
  ASSERT_TRUE(client->WaitFor("data: "));
  worker->Stop(false);
  const HttpAnswer answer = client->Read();
  EXPECT_EQ(answer.code, 200);
  const std::vector<Json> events = Events(answer.body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["error"]["code"], "unavailable");
  EXPECT_EQ(client->Call("GET", "/health/live").code, 200);  // the stream ended properly
}

TEST_F(HttpFrontTest, SixteenAtOnce) {
  Start();
  FakeScript script = Saying("xyz");
  script.tokens_per_message = 3;
  auto worker = StartWorker(script);
  std::vector<std::thread> threads;
  std::vector<HttpAnswer> answers(16);
  for (size_t i = 0; i < answers.size(); ++i) {
    threads.emplace_back([&, i] {
      auto client = Connect();
      for (int round = 0; round < 3; ++round) {
        answers[i] = client->Post(Body(20 + int(i), i % 2 == 0, R"(, "stream_options": {"include_usage": true})"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].code, 200);
    const Json usage = i % 2 == 1 ? Parsed(answers[i].body)["usage"] : Events(answers[i].body).rbegin()[1]["usage"];
    EXPECT_EQ(usage["completion_tokens"], 20 + i);
  }
  ExpectClean(*worker);
}

// ---- connections ----

TEST_F(HttpFrontTest, OneConnectionServesManyRequests) {
  Start();
  auto worker = StartWorker(Saying("abc"));
  auto client = Connect();
  for (int i = 0; i < 20; ++i) {
    const HttpAnswer answer = client->Post(Body(1 + i % 4, i % 2 == 0));
    EXPECT_EQ(answer.code, 200);
    EXPECT_FALSE(answer.headers.contains("connection"));
  }
  EXPECT_EQ(client->Post(Body(1), "Connection: close\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(client->Closed());
  ExpectClean(*worker);
}

TEST_F(HttpFrontTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  auto worker = StartWorker(Saying("abc"));
  auto client = Connect();
  std::string bytes;
  for (int i = 1; i <= 30; ++i) {
    bytes += HttpClient::Request("POST", "/v1/completions",
                                 Body(i, i % 2 == 0, ", \"pad\": \"" + std::string(9000, 'p') + "\""),
                                 absl::StrFormat("X-Request-Id: r%d\r\n", i));
  }
  std::thread sender([&] { client->Send(bytes); });
  for (int i = 1; i <= 30; ++i) {
    const HttpAnswer answer = client->Read();
    EXPECT_EQ(answer.code, 200);
    EXPECT_EQ(answer.headers.at("x-request-id"), absl::StrFormat("r%d", i));
  }
  sender.join();
  ExpectClean(*worker);
}

TEST_F(HttpFrontTest, OldClientsAndCarefulClients) {
  Start();
  auto worker = StartWorker(Saying("abc"));
  const std::string body = Body(5, true);
  auto old = Connect();
  old->Send(absl::StrFormat("POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", body.size(), body));
  const HttpAnswer answer = old->Read();
  EXPECT_EQ(answer.code, 200);
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));

  auto careful = Connect();
  careful->Send(absl::StrFormat("POST /v1/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
                                body.size()));
  EXPECT_EQ(careful->Read().code, 100);
  careful->Send(body);
  EXPECT_EQ(careful->Read().code, 200);

  auto chunked = Connect();
  chunked->Send("POST http://host/v1/completions?a=b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : body) chunked->Send(absl::StrFormat("1\r\n%c\r\n", c));
  chunked->Send("0\r\n\r\n");
  EXPECT_EQ(chunked->Read().code, 200);
}

TEST_F(HttpFrontTest, LimitsOfRequests) {
  ServerOptions options;
  options.http.body_bytes = 100000;
  Start(options);
  auto worker = StartWorker();
  auto large = Connect();
  EXPECT_EQ(large->Post(std::string(1 << 20, ' ')).code, 413);
  EXPECT_TRUE(large->Closed());
  auto endless = Connect();
  endless->Send("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::thread sender([&] {
    const std::string chunk = absl::StrFormat("%x\r\n%s\r\n", 10000, std::string(10000, ' '));
    for (int i = 0; i < 50; ++i) endless->Send(chunk);
  });
  EXPECT_EQ(endless->Read().code, 413);
  sender.join();
  auto wordy = Connect();
  EXPECT_EQ(wordy->Call("GET", "/v1/models", "", "X: " + std::string(40000, 'h') + "\r\n").code, 431);
  EXPECT_TRUE(wordy->Closed());
  auto wrong = Connect();
  EXPECT_EQ(wrong->Post(Body(1), "Expect: miracles\r\n").code, 417);
  EXPECT_EQ(Post(Body(3)).code, 200);
}

TEST_F(HttpFrontTest, LongPrompts) {
  Start();
  auto worker = StartWorker();
  std::string ids = "5";
  for (int i = 1; i < 60000; ++i) ids += ", 5";
  const HttpAnswer answer = Post(absl::StrFormat(R"({"prompt": [%s], "max_tokens": 2})", ids));
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(Parsed(answer.body)["usage"]["prompt_tokens"], 60000);
  const HttpAnswer refused = Post(absl::StrFormat(R"({"prompt": "%s"})", std::string(8 << 20, 'q')));
  EXPECT_EQ(refused.code, 400);
  EXPECT_THAT(refused.body, HasSubstr("can't fit the context"));
}

TEST_F(HttpFrontTest, MalformedHttpIsRefusedAndClosed) {
  Start();
  auto worker = StartWorker();
  for (const char* bytes : {"nonsense\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x05\x01\x02\x03\r\n\r\n",
                            "GET / HTTP/3.0\r\n\r\n", "POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                            "POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
                            "GET /v1/models HTTP/1.1\r\nBad Header: 1\r\n\r\n",
                            "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    auto client = Connect();
    client->Send(bytes);
    const HttpAnswer answer = client->Read();
    EXPECT_EQ(answer.code, 400) << bytes;
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_THAT(answer.body, HasSubstr("malformed HTTP"));
    EXPECT_TRUE(client->Closed()) << bytes;
  }
  auto vanished = Connect();
  vanished->Send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc");
  vanished->Close();
  EXPECT_EQ(Post(Body(3)).code, 200);
}

TEST_F(HttpFrontTest, QuietConnectionsAreClosed) {
  ServerOptions options;
  options.http.idle = options.http.receive = absl::Milliseconds(100);
  Start(options);
  auto idle = Connect();
  EXPECT_TRUE(idle->Closed());
  auto stuck = Connect();
  stuck->Send("POST /v1/comp");
  EXPECT_TRUE(stuck->Closed());
  // A request that waits for its answer is not quiet.
  FakeScript slow;
  slow.answer_reserve = false;
  auto worker = StartWorker(slow);
  auto waiting = Connect();
  waiting->Send(HttpClient::Request("POST", "/v1/completions", Body(5, false, R"(, "timeout_ms": 400)")));
  EXPECT_EQ(waiting->Read().code, 408);
}

TEST_F(HttpFrontTest, MoreConnectionsThanAllowedAreTurnedAway) {
  ServerOptions options;
  options.http.connections = 2;
  Start(options);
  auto first = Connect();
  auto second = Connect();
  EXPECT_EQ(first->Call("GET", "/health/live").code, 200);
  EXPECT_EQ(second->Call("GET", "/health/live").code, 200);
  EXPECT_EQ(Connect()->Read().code, 503);
  first->Close();
  EXPECT_TRUE(Eventually([&] { return Get("/health/live").code == 200; }));
}

// ---- a client that goes away, in each state ----

TEST_F(HttpFrontTest, ADisconnectWhileQueuedTouchesNoWorker) {
  Start();
  FakeScript script;
  script.tokens = 1;  // then it hangs
  auto worker = StartWorker(script, {.max_running = 1});
  auto running = Connect();
  running->Send(HttpClient::Request("POST", "/v1/completions", Body(100)));
  ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
  auto queued = Connect();
  queued->Send(HttpClient::Request("POST", "/v1/completions", Body(100, true)));
  ASSERT_TRUE(Eventually([&] { return State().queued() == 1; }));
  queued->Close();
  EXPECT_TRUE(Eventually([&] { return State().queued() == 0; }));
  EXPECT_EQ(worker->cancels(), 0);
  EXPECT_EQ(worker->reserves(), 1);
  running->Close();
  ExpectClean(*worker);
}

TEST_F(HttpFrontTest, ADisconnectWhileReservedOrPrefillingOrDecoding) {
  Start();
  auto worker = StartWorker();
  FakeScript reserved;
  reserved.answer_reserve = false;
  FakeScript prefilling;
  prefilling.tokens = 0;
  FakeScript decoding;
  decoding.tokens = 2;
  int cancels = 0;
  for (const bool stream : {false, true}) {
    for (const FakeScript& script : {reserved, prefilling, decoding}) {
      worker->SetScript(script);
      auto client = Connect();
      client->Send(HttpClient::Request("POST", "/v1/completions", Body(100, stream)));
      ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
      EXPECT_TRUE(!stream || script.tokens != 2 || client->WaitFor("data: "));
      client->Close();
      ++cancels;
      EXPECT_TRUE(Eventually([&] { return worker->cancels() == cancels; }));
      ExpectClean(*worker);
    }
  }
}

TEST_F(HttpFrontTest, ADisconnectBehindManyPipelinedBytes) {
  Start();
  FakeScript script;
  script.tokens = 1;
  auto worker = StartWorker(script);
  auto client = Connect();
  client->Send(HttpClient::Request("POST", "/v1/completions", Body(100)));
  client->Send(HttpClient::Request("POST", "/v1/completions", std::string(100000, ' ')));
  ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
  client->HalfClose();
  EXPECT_TRUE(Eventually([&] { return worker->cancels() == 1; }));
  ExpectClean(*worker);
}

TEST_F(HttpFrontTest, ASlowReaderIsCutOffWithBoundedMemory) {
  ServerOptions options;
  options.http.outbox_bytes = 16 << 10;
  options.http.slow_grace = absl::Milliseconds(100);
  Start(options);
  FakeScript script;
  script.top_logprobs = 20;
  script.tokens_per_message = 50;
  auto worker = StartWorker(script);
  auto client = Connect(4096);
  client->Send(HttpClient::Request("POST", "/v1/completions", Body(60000, true, R"(, "logprobs": 20)")));
  EXPECT_TRUE(Eventually([&] { return worker->cancels() == 1; }));  // without a single read
  ExpectClean(*worker);
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_THAT(client->Read().body, ::testing::Not(HasSubstr("[DONE]")));
}

TEST_F(HttpFrontTest, AReaderThatComesBackInTimeHearsWhy) {
  ServerOptions options;
  options.http.outbox_bytes = 16 << 10;
  options.http.slow_grace = absl::Seconds(60);
  Start(options);
  FakeScript script;
  script.top_logprobs = 20;
  script.tokens_per_message = 50;
  auto worker = StartWorker(script);
  auto client = Connect(4096);
  client->Send(HttpClient::Request("POST", "/v1/completions", Body(60000, true, R"(, "logprobs": 20)")));
  EXPECT_TRUE(Eventually([&] { return worker->cancels() == 1; }));
  const HttpAnswer answer = client->Read();
  EXPECT_THAT(answer.body, HasSubstr("reads too slowly"));
  EXPECT_THAT(answer.body, ::testing::Not(HasSubstr("[DONE]")));
  EXPECT_EQ(client->Call("GET", "/health/live").code, 200);  // the stream ended properly
}

// ---- the process ----

TEST_F(HttpFrontTest, APortInUseIsAnError) {
  Start();
  ServerOptions options;
  options.grpc_port = 0;
  options.http.port = router_->http_port();
  const auto second = RouterServer::Start(options, model_->served());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--http-port"));
  options.http.port = 0;
  options.http.host = "no.such.host.invalid";
  EXPECT_FALSE(RouterServer::Start(options, model_->served()).ok());
  options.http.host = "localhost";
  const auto third = RouterServer::Start(options, model_->served());
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(HttpClient((*third)->http_port()).Call("GET", "/health/live").code, 200);
}

TEST_F(HttpFrontTest, ShutdownEndsRunningAnswers) {
  Start();
  FakeScript script;
  script.tokens = 1;
  auto worker = StartWorker(script);
  auto stream = Connect();
  auto whole = Connect();
  auto idle = Connect();
  EXPECT_EQ(idle->Call("GET", "/health/live").code, 200);
  stream->Send(HttpClient::Request("POST", "/v1/completions", Body(100, true)));
  whole->Send(HttpClient::Request("POST", "/v1/completions", Body(100)));
  ASSERT_TRUE(Eventually([&] { return worker->live() == 2; }));
  ASSERT_TRUE(stream->WaitFor("data: "));
  router_->Shutdown();
  const HttpAnswer answer = whole->Read();
  EXPECT_EQ(answer.code, 503);
  EXPECT_THAT(answer.body, HasSubstr("router is shutting down"));
  EXPECT_THAT(stream->Read().body, HasSubstr("router is shutting down"));
  EXPECT_TRUE(idle->Closed());
  EXPECT_TRUE(Eventually([&] { return worker->live() == 0; }));
}

TEST_F(HttpFrontTest, ShutdownCutsOffWhoDoesNotRead) {
  Start();
  FakeScript script;
  script.top_logprobs = 20;
  script.tokens_per_message = 50;
  auto worker = StartWorker(script);
  auto client = Connect(4096);
  client->Send(HttpClient::Request("POST", "/v1/completions", Body(60000, true, R"(, "logprobs": 20)")));
  ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
  router_->Shutdown();
  router_.reset();
}

}  // namespace
}  // namespace sluice::router
