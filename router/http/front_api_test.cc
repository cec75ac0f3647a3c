// The rest of the HTTP API over loopback: several prompts, keys, browsers, tokens, what headers say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "router/testing/front_world.h"
#include "router/testing/http_client.h"

namespace sluice::router {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class HttpApiTest : public FrontWorld {
 protected:
  void Start(ServerOptions options = {}) {
    options.http.port = 0;
    options.core.version = "1.2.3";
    StartRouter(options);
  }
  HttpAnswer Call(const std::string& method, const std::string& path, const std::string& body = "",
                  const std::string& headers = "") {
    return HttpClient(router_->http_port()).Call(method, path, body, headers);
  }
  HttpAnswer Post(const std::string& body, const std::string& headers = "") {
    return Call("POST", "/v1/completions", body, headers);
  }
  FakeScript Saying(const std::string& text) {
    FakeScript script;
    script.ids = model_->Encode(text);
    return script;
  }
};

TEST_F(HttpApiTest, SeveralPromptsHaveOneAnswer) {
  Start();
  auto worker = StartWorker(Saying("abc"));
  const HttpAnswer answer = Post(R"({"prompt": ["one", "two", "three"], "max_tokens": 4})");
  ASSERT_EQ(answer.code, 200) << answer.body;
  const Json body = Json::parse(answer.body);
  ASSERT_EQ(body["choices"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(body["choices"][size_t(i)]["index"], i);
    EXPECT_THAT(body["choices"][size_t(i)]["text"].get<std::string>(), StartsWith("abc"));
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  // One that is wrong is named, and nothing of the others is left.
  const HttpAnswer wrong = Post(R"({"prompt": [[1], [-5]], "max_tokens": 4})");
  EXPECT_EQ(wrong.code, 400);
  EXPECT_THAT(wrong.body, HasSubstr("ids must be in"));
  ExpectClean(*worker);
}

TEST_F(HttpApiTest, AVanishedClientOfSeveralPromptsLeavesNothing) {
  Start();
  FakeScript script = Saying("abc");
  script.tokens = 3;  // then it computes for ever
  auto worker = StartWorker(script);
  HttpClient client(router_->http_port());
  client.Send(HttpClient::Request("POST", "/v1/completions",
                                  R"({"prompt": ["one", "two"], "max_tokens": 1000, "stream": true})"));
  ASSERT_TRUE(client.WaitFor("data: "));
  client.Close();
  ExpectClean(*worker);
}

TEST_F(HttpApiTest, KeysGuardTheApi) {
  ServerOptions options;
  options.http.keys = *ApiKeys::Parse("# comment\nfirst-key-1234\nsecond-key-1234 team-b\n", "keys");
  Start(options);
  key_ = "first-key-1234";
  auto worker = StartWorker(Saying("abc"));
  for (const char* headers : {"", "Authorization: Bearer wrong-key-000\r\n", "Authorization: first-key-1234\r\n",
                              "Authorization: Bearer\r\n", "Authorization: Basic Zmlyc3Q=\r\n"}) {
    const HttpAnswer answer = Post(R"({"prompt": "x"})", headers);
    EXPECT_EQ(answer.code, 401) << headers;
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "invalid_api_key");
    EXPECT_EQ(Call("GET", "/v1/models", "", headers).code, 401);
    EXPECT_EQ(Call("POST", "/tokenize", R"({"prompt": "x"})", headers).code, 401);
  }
  for (const char* open : {"/health/live", "/health/ready", "/metrics", "/version"}) {
    EXPECT_EQ(Call("GET", open).code, 200) << open;
  }
  EXPECT_EQ(Post(R"({"prompt": "x"})", "Authorization: bearer first-key-1234\r\n").code, 200);
  EXPECT_EQ(Post(R"({"prompt": "x"})", "authorization: Bearer second-key-1234\r\nX-Sluice-Tenant: team-a\r\n").code,
            200);
  ExpectClean(*worker);
}

TEST_F(HttpApiTest, KeysGuardGrpcToo) {
  ServerOptions options;
  options.http.keys = *ApiKeys::Parse("first-key-1234\n", "keys");
  Start(options);
  const auto code = [this](const char* authorization) {
    grpc::ClientContext generate, state;
    for (grpc::ClientContext* context : {&generate, &state}) context->AddMetadata("authorization", authorization);
    pb::GenerateRequest request;  // it has no prompt
    const grpc::StatusCode generated = stub_->Generate(&generate, request)->Finish().error_code();
    pb::ClusterState answer;
    const grpc::StatusCode seen = pb::Cluster::NewStub(channel_)->GetState(&state, {}, &answer).error_code();
    return std::pair(generated, seen);
  };
  EXPECT_EQ(code("Bearer nothing"), std::pair(grpc::StatusCode::UNAUTHENTICATED, grpc::StatusCode::UNAUTHENTICATED));
  EXPECT_EQ(code("Bearer first-key-1234"), std::pair(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::OK));
}

TEST(ApiKeys, FilesAreChecked) {
  const auto why = [](const std::string& text) { return std::string(ApiKeys::Parse(text, "keys").status().message()); };
  EXPECT_EQ(why("short\n"), "--api-keys: keys:1: a key has at least 8 characters");
  EXPECT_EQ(why("\nlong-enough a b\n"), "--api-keys: keys:2: a line is KEY or KEY TENANT");
  EXPECT_EQ(why("long-enough\nlong-enough x\n"), "--api-keys: keys:2: this key was there already");
  EXPECT_EQ(why("# nothing\n"), "--api-keys: keys has no key");
  EXPECT_EQ(ApiKeys::Read("/nonexistent").status().message(), "--api-keys: can't read /nonexistent, or it is empty");
  EXPECT_TRUE(ApiKeys::Read("")->empty());
  const ApiKeys keys = *ApiKeys::Parse("long-enough team\r\n", "keys");
  EXPECT_EQ(keys.Tenant("Bearer long-enough"), "team");
  EXPECT_EQ(keys.Tenant("Bearer long-enoug"), std::nullopt);
}

TEST_F(HttpApiTest, BrowsersOfAllowedOriginsMayAsk) {
  ServerOptions options;
  options.http.cors_origins = {"https://app.example"};
  Start(options);
  auto worker = StartWorker(Saying("abc"));
  const HttpAnswer preflight = Call("OPTIONS", "/v1/chat/completions", "",
                                    "Origin: https://app.example\r\nAccess-Control-Request-Headers: authorization\r\n");
  EXPECT_EQ(preflight.code, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization");
  for (const char* stream : {"false", "true"}) {
    const HttpAnswer answer =
        Post(absl::StrFormat(R"({"prompt": "x", "stream": %s})", stream), "Origin: https://app.example\r\n");
    EXPECT_EQ(answer.code, 200);
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example");
    EXPECT_EQ(answer.headers.at("vary"), "Origin");
  }
  const HttpAnswer other = Post(R"({"prompt": "x"})", "Origin: https://evil.example\r\n");
  EXPECT_FALSE(other.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(Call("OPTIONS", "/v1/models", "", "Origin: https://evil.example\r\n").code, 405);
  ExpectClean(*worker);
}

TEST_F(HttpApiTest, TokensBothWays) {
  Start();
  const Json tokens = Json::parse(Call("POST", "/tokenize", R"({"prompt": "hello", "return_token_strs": true})").body);
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["max_model_len"], kContext);
  std::string text;
  for (const Json& piece : tokens["token_strs"]) text += piece;
  EXPECT_EQ(text, "hello");
  const std::string ids = tokens["tokens"].dump();
  EXPECT_EQ(Json::parse(Call("POST", "/detokenize", absl::StrCat(R"({"tokens": )", ids, "}")).body)["prompt"], "hello");
  EXPECT_EQ(Json::parse(Call("POST", "/tokenize", R"({"prompt": ""})").body)["count"], 0);
  EXPECT_EQ(Call("POST", "/detokenize", R"({"tokens": [-1]})").code, 400);
  EXPECT_EQ(Call("POST", "/tokenize", R"({"model": "other", "prompt": "x"})").code, 404);
}

TEST_F(HttpApiTest, SmallAnswers) {
  Start();
  EXPECT_EQ(Json::parse(Call("GET", "/version").body)["version"], "1.2.3");
  const std::string name = Json::parse(Call("GET", "/v1/models").body)["data"][0]["id"];
  EXPECT_EQ(Json::parse(Call("GET", absl::StrCat("/v1/models/", absl::StrReplaceAll(name, {{" ", "%20"}}))).body)["id"],
            name);
  EXPECT_EQ(Call("GET", "/v1/models/tin%79.gguf").code, 200);
  EXPECT_EQ(Call("GET", "/v1/models/other").code, 404);
  EXPECT_EQ(Call("GET", "/health").code, 503);
}

TEST_F(HttpApiTest, HeadersSayWhatTheBodyDoesNot) {
  Start();
  auto worker = StartWorker(Saying("abc"));
  const HttpAnswer timed = Post(R"({"prompt": "x"})", "X-Sluice-Timing: 1\r\nX-Sluice-Priority: 5\r\n");
  const Json timing = Json::parse(timed.body)["timing"][0];
  EXPECT_GT(timing["total_ms"].get<double>(), 0);
  EXPECT_EQ(timing["timeline"][0]["name"], "queued");
  const HttpAnswer bad = Post(R"({"prompt": "x"})", "X-Sluice-Priority: high\r\n");
  EXPECT_EQ(bad.code, 400);
  EXPECT_EQ(Json::parse(bad.body)["error"]["param"], "x-sluice-priority");
  EXPECT_EQ(Post(R"({"prompt": "x"})", "X-Sluice-Ttft-Slo-Ms: -1\r\n").code, 400);
  EXPECT_EQ(Post(R"({"prompt": "x", "ttft_slo_ms": 100000})", "X-Sluice-Ttft-Slo-Ms: -1\r\n").code, 200)
      << "the body's field counts";
  ExpectClean(*worker);
}

TEST_F(HttpApiTest, AConversationWithoutATemplateIsRefusedWithTheReason) {
  Start();
  const HttpAnswer answer = Call("POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(answer.code, 400);
  EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "messages");
  EXPECT_THAT(answer.headers.at("x-request-id"), StartsWith("chatcmpl-"));
}

}  // namespace
}  // namespace sluice::router
