// The HTTP API's mapping, without sockets: JSON to requests, responses to JSON, statuses to errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/http/completion_answer.h"
#include "router/http/completion_request.h"
#include "router/http/error.h"
#include "router/http/head.h"
#include "router/http/info_bodies.h"
#include "router/testing/tiny_served_model.h"

namespace sluice::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

std::string Refusal(const std::string& body) {
  const auto parsed = ParseCompletion(body);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(parsed.status().message());
}

ApiRequest Parse(const std::string& body) {
  auto parsed = ParseCompletion(body);
  EXPECT_TRUE(parsed.ok()) << body << ": " << parsed.status();
  return parsed.ok() ? *std::move(parsed) : ApiRequest{};
}

// ---- requests ----

TEST(ParseCompletion, TakesEveryField) {
  const ApiRequest parsed = Parse(R"({
    "model": "tiny", "prompt": "Hi \u00e9\n", "max_tokens": 7, "min_tokens": 2, "temperature": 0.5, "top_p": 0.75,
    "top_k": 40, "min_p": 0.25, "seed": 18446744073709551615, "stop": ["a", "b"], "stop_token_ids": [3, 4],
    "ignore_eos": true, "logprobs": 5, "n": 1, "best_of": 1, "presence_penalty": 1, "frequency_penalty": -0.5,
    "repetition_penalty": 1.25, "logit_bias": {"5": 1.5, "17": -100}, "stream": true,
    "stream_options": {"include_usage": true, "other": [1, {}]}, "echo": false, "suffix": "", "user": "u", "priority": -3, "timeout_ms": 900})");
  const pb::GenerateRequest& request = parsed.request;
  const pb::SamplingParams& sampling = request.sampling();
  EXPECT_EQ(request.model(), "tiny");
  EXPECT_EQ(request.text(), "Hi \xc3\xa9\n");
  EXPECT_EQ(sampling.max_tokens(), 7);
  EXPECT_EQ(sampling.min_tokens(), 2);
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.75f);
  EXPECT_EQ(sampling.top_k(), 40);
  EXPECT_EQ(sampling.min_p(), 0.25f);
  EXPECT_EQ(sampling.seed(), std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(sampling.stop(), ElementsAre("a", "b"));
  EXPECT_THAT(sampling.stop_token_ids(), ElementsAre(3, 4));
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_EQ(sampling.logprobs(), 5);
  EXPECT_EQ(sampling.n(), 1);
  EXPECT_EQ(sampling.presence_penalty(), 1.0f);
  EXPECT_EQ(sampling.frequency_penalty(), -0.5f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.25f);
  EXPECT_THAT(sampling.logit_bias(), testing::UnorderedElementsAre(testing::Pair(5, 1.5f), testing::Pair(17, -100.0f)));
  EXPECT_EQ(Parse(R"({"prompt": "x", "prompt_logprobs": 2})").request.sampling().prompt_logprobs(), 2);
  EXPECT_EQ(request.priority(), -3);
  EXPECT_EQ(request.timeout_ms(), 900);
  EXPECT_TRUE(parsed.stream);
  EXPECT_TRUE(parsed.include_usage);
}

TEST(ParseCompletion, DefaultsAreThoseOfOpenAi) {
  for (const char* body : {R"({"prompt": "x"})",
                           R"({"prompt": "x", "temperature": null, "max_tokens": null, "logprobs": null, "stop": null,
                               "stream_options": null, "seed": null, "logit_bias": null, "stream": null})"}) {
    const ApiRequest parsed = Parse(body);
    EXPECT_EQ(parsed.request.sampling().temperature(), 1.0f);
    EXPECT_EQ(parsed.request.sampling().max_tokens(), 16);
    EXPECT_FALSE(parsed.request.sampling().has_logprobs());
    EXPECT_FALSE(parsed.request.sampling().has_seed());
    EXPECT_EQ(parsed.request.sampling().stop_size(), 0);
    EXPECT_FALSE(parsed.stream);
    EXPECT_FALSE(parsed.include_usage);
  }
}

TEST(ParseCompletion, PromptsOfEveryForm) {
  EXPECT_EQ(Parse(R"({"prompt": ["one"]})").request.text(), "one");
  EXPECT_THAT(Parse(R"({"prompt": [1, 2, 3]})").request.token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Parse(R"({"prompt": [[4, 5]]})").request.token_ids().ids(), ElementsAre(4, 5));
  // The emptiness of a prompt is Validate's to refuse.
  EXPECT_THAT(Parse(R"({"prompt": [[]]})").request.token_ids().ids(), ElementsAre());
  EXPECT_TRUE(Parse(R"({"prompt": ""})").request.has_text());
  for (const char* mixed :
       {R"([[1], 2])", R"([1, [2]])", R"(["a", 1])", R"([1, "a"])", R"(["a", [1]])", R"([[1], "a"])", R"([["a"]])"}) {
    EXPECT_THAT(Refusal(absl::StrCat(R"({"prompt": )", mixed, "}")), testing::EndsWith("got a mix")) << mixed;
  }
  for (const char* bad : {"5", "true", "{}", "[[[1]]]", "[{}]", "[1.5]", "[null]", "[[1, true]]"}) {
    EXPECT_THAT(Refusal(absl::StrCat(R"({"prompt": )", bad, "}")), StartsWith("prompt: must be ")) << bad;
  }
  EXPECT_THAT(Refusal(R"({"prompt": [2147483648]})"), "prompt: is out of range");
  EXPECT_THAT(Refusal(R"({"model": "m"})"), StartsWith("prompt: is missing"));
  EXPECT_THAT(Refusal(R"({"prompt": null})"), StartsWith("prompt: is missing"));
}

TEST(ParseCompletion, SeveralPrompts) {
  const ApiRequest texts = Parse(R"({"prompt": ["a", "b", ""], "max_tokens": 3})");
  ASSERT_EQ(texts.count(), 3u);
  EXPECT_EQ(texts.Request(0).text(), "a");
  EXPECT_EQ(texts.Request(1).text(), "b");
  EXPECT_TRUE(texts.Request(2).has_text());
  EXPECT_EQ(texts.Request(2).sampling().max_tokens(), 3);
  const ApiRequest ids = Parse(R"({"prompt": [[1, 2], [], [3]]})");
  ASSERT_EQ(ids.count(), 3u);
  EXPECT_THAT(ids.Request(0).token_ids().ids(), ElementsAre(1, 2));
  EXPECT_THAT(ids.Request(1).token_ids().ids(), ElementsAre());
  EXPECT_THAT(ids.Request(2).token_ids().ids(), ElementsAre(3));
  std::string many;
  for (size_t i = 0; i <= kMaxPrompts; ++i) absl::StrAppend(&many, i == 0 ? "" : ",", "\"x\"");
  EXPECT_EQ(Refusal(absl::StrCat(R"({"prompt": [)", many, "]}")), "prompt: at most 128 prompts are allowed");
}

TEST(ParseCompletion, EchoAsksForThePrompt) {
  const ApiRequest plain = Parse(R"({"prompt": "x", "echo": true})");
  EXPECT_TRUE(plain.echo);
  EXPECT_FALSE(plain.request.sampling().has_prompt_logprobs());
  const ApiRequest scored = Parse(R"({"prompt": "x", "echo": true, "logprobs": 2, "max_tokens": 0})");
  EXPECT_EQ(scored.request.sampling().prompt_logprobs(), 2);
  EXPECT_EQ(scored.request.sampling().max_tokens(), 1);
  EXPECT_TRUE(scored.no_answer);
  EXPECT_FALSE(scored.prompt_logprobs);
}

TEST(ParseCompletion, WrongTypesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("model": 5)", "model: must be a string, got a number"},
      {R"("model": "")", "model: must not be empty"},
      {R"("max_tokens": "5")", "max_tokens: must be an integer, got a string"},
      {R"("max_tokens": 1.5)", "max_tokens: must be an integer, got a fraction"},
      {R"("max_tokens": [1])", "max_tokens: must be a single value, got an array"},
      {R"("max_tokens": {"a": 1})", "max_tokens: must be a single value, got an object"},
      {R"("max_tokens": 4294967297)", "max_tokens: is out of range"},
      {R"("top_k": -2147483649)", "top_k: is out of range"},
      {R"("top_k": 1e300)", "top_k: is out of range"},
      {R"("temperature": "hot")", "temperature: must be a number, got a string"},
      {R"("temperature": true)", "temperature: must be a number, got a boolean"},
      {R"("seed": 1.5)", "seed: must be an integer, got a fraction"},
      {R"("seed": -9223372036854775809)", "seed: is out of range"},
      {R"("stop": 1)", "stop: must be a string or an array of strings, got a number"},
      {R"("stop": ["a", null])", "stop: must be a string or an array of strings, got null"},
      {R"("stop": [["a"]])", "stop: must be a string or an array of strings, got an array of arrays"},
      {R"("stop_token_ids": 5)", "stop_token_ids: must be an array of token ids, got a number"},
      {R"("logprobs": true)", "logprobs: must be an integer, got a boolean"},
      {R"("stream": 1)", "stream: must be a boolean, got a number"},
      {R"("ignore_eos": "yes")", "ignore_eos: must be a boolean, got a string"},
      {R"("stream_options": true)", "stream_options: must be an object, got a boolean"},
      {R"("stream_options": {"include_usage": 1})", "stream_options.include_usage: must be a boolean, got a number"},
      {R"("user": 1)", "user: must be a string, got a number"},
      {R"("echo": 1)", "echo: must be a boolean, got a number"},
      {R"("echo": true, "logprobs": 1, "stream": true)",
       "echo: with logprobs is not available in a stream; leave out \"stream\""},
      {R"("skip_special_tokens": false)", "skip_special_tokens: is not supported yet; only true is allowed"},
      {R"("best_of": 2)", "best_of: is not supported yet; only 1 is allowed"},
      {R"("suffix": "x")", "suffix: is not supported yet; leave it out"},
      {R"("logit_bias": {"5": "1"})", "logit_bias: must be a number, got a string"},
      {R"("logit_bias": {"5": null})", "logit_bias: must be a number, got null"},
      {R"("logit_bias": {"5": [1]})", "logit_bias: must be a number, got an array"},
      {R"("logit_bias": {"5": {"6": 1}})", "logit_bias: must be a number, got an object"},
      {R"("logit_bias": {"five": 1})", "logit_bias: keys must be token ids, got \"five\""},
      {R"("logit_bias": {"": 1})", "logit_bias: keys must be token ids, got \"\""},
      {R"("logit_bias": {"5": 1, "6": 2, "5": 1})", "logit_bias: token 5 is given twice"},
      {R"("repetition_penalty": "1")", "repetition_penalty: must be a number, got a string"},
      {R"("prompt_logprobs": true)", "prompt_logprobs: must be an integer, got a boolean"},
      {R"("prompt_logprobs": 0, "stream": true)",
       "prompt_logprobs: is not available in a stream; leave out \"stream\" or this field"},
      {R"("logit_bias": [1])", "logit_bias: must be an object, got an array"},
      {R"("n": 1, "n": 1)", "n: is given twice"},
  };
  for (const auto& [field, why] : cases) {
    EXPECT_EQ(Refusal(absl::StrCat(R"({"prompt": "x", )", field, "}")), why) << field;
  }
}

TEST(ParseCompletion, NumbersMayBeSpelledFreely) {
  EXPECT_EQ(Parse(R"({"prompt": "x", "max_tokens": 16.0})").request.sampling().max_tokens(), 16);
  EXPECT_EQ(Parse(R"({"prompt": "x", "temperature": 2})").request.sampling().temperature(), 2.0f);
  EXPECT_EQ(Parse(R"({"prompt": "x", "top_k": -1})").request.sampling().top_k(), -1);
  EXPECT_EQ(Parse(R"({"prompt": "x", "seed": -1})").request.sampling().seed(), std::numeric_limits<uint64_t>::max());
}

TEST(ParseCompletion, UnknownFieldsOfAnyShapeAreIgnored) {
  const ApiRequest parsed = Parse(
      R"({"a": [{"prompt": 5, "stream": [true]}, [[1]]], "prompt": "x", "b": {"prompt": {"max_tokens": "z"}}, "c": null})");
  EXPECT_EQ(parsed.request.text(), "x");
  EXPECT_FALSE(parsed.stream);
  const std::string deep(200000, '[');
  const std::string back(200000, ']');
  EXPECT_EQ(Parse(absl::StrCat(R"({"a": )", deep, back, R"(, "prompt": "y"})")).request.text(), "y");
}

TEST(ParseCompletion, BrokenJsonIsLocated) {
  EXPECT_EQ(Refusal(R"({"prompt": tru})"), "the body is not valid JSON: error at byte 15");
  for (const char* body : {"", "{", "nul", "{\"prompt\": \"\xff\"}", "{\"prompt\": \"\\ud800\"}",
                           "{\"prompt\": \"x\"} 1", "{\"prompt\": 1e999}", "{'prompt': 1}", "\xff\xfe"}) {
    EXPECT_THAT(Refusal(body), HasSubstr("is not valid JSON")) << body;
  }
  for (const char* body : {"[]", "5", "null", "\"x\"", "[{\"prompt\": \"x\"}]"}) {
    EXPECT_EQ(Refusal(body), "the body must be a JSON object") << body;
  }
}

TEST(ParseCompletion, RandomDamageNeverCrashes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 rng(seed);
  const std::string good =
      R"({"prompt": ["a"], "stop": ["x", "y"], "max_tokens": 5, "stream_options": {"include_usage": true},
                              "logit_bias": {"5": 1}, "q": [1, {"z": [[2]]}], "seed": -1.0, "stop_token_ids": [1, 2]})";
  const std::string bytes = "{}[]\",:0a\\ -.e";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string body = good;
    for (int edits = 1 + int(rng() % 4); edits > 0; --edits) {
      const size_t at = rng() % body.size();
      if (rng() % 3 == 0) {
        body.erase(at, 1 + rng() % 3);
      } else {
        body[at] = bytes[rng() % bytes.size()];
      }
    }
    const auto parsed = ParseCompletion(body);
    accepted += parsed.ok();
    EXPECT_TRUE(parsed.ok() || absl::IsInvalidArgument(parsed.status())) << body;
  }
  EXPECT_GT(accepted, 0);
}

// ---- answers ----

pb::GenerateResponse Delta(const std::string& text, const std::vector<std::string>& tokens = {}) {
  pb::GenerateResponse response;
  pb::ChoiceDelta& delta = *response.add_choices();
  delta.set_text(text);
  for (const std::string& token : tokens) {
    pb::TokenLogprobs& logprobs = *delta.add_logprobs();
    logprobs.mutable_sampled()->set_token_id(1);
    logprobs.mutable_sampled()->set_token(token);
    logprobs.mutable_sampled()->set_logprob(-0.5f);
    pb::TokenLogprob& top = *logprobs.add_top();
    top.set_token_id(2);
    top.set_token("\xe2\x80");
    top.set_logprob(-std::numeric_limits<float>::infinity());
  }
  return response;
}

pb::GenerateResponse Last(pb::FinishReason reason, const std::string& text = "") {
  pb::GenerateResponse response = Delta(text);
  response.mutable_choices(0)->set_finish_reason(reason);
  response.mutable_usage()->set_prompt_tokens(3);
  response.mutable_usage()->set_completion_tokens(4);
  response.mutable_usage()->set_cached_tokens(2);
  return response;
}

const AnswerNames kNames = {"id-1", "tiny \"m\"", 1700000000};

std::vector<Json> Events(const std::string& bytes) {
  std::vector<Json> events;
  const std::vector<std::string> parts = absl::StrSplit(bytes, "\n\n", absl::SkipEmpty());
  for (const std::string& event : parts) {
    EXPECT_THAT(event, StartsWith("data: "));
    if (event != "data: [DONE]") events.push_back(Json::parse(event.substr(6)));
  }
  return events;
}

TEST(CompletionAnswer, WholeAnswer) {
  CompletionAnswer answer({}, kNames, nullptr);
  pb::GenerateResponse prompt;
  prompt.mutable_prompt()->set_seed(1);
  EXPECT_EQ(answer.Add(0, prompt), "");
  EXPECT_EQ(answer.Add(0, Delta("Hello")), "");
  const Json body = Json::parse(answer.Add(0, Last(pb::FINISH_REASON_LENGTH, " \xc3\xa9\"\n")));
  EXPECT_EQ(body,
            Json::parse(R"({"id": "id-1", "object": "text_completion", "created": 1700000000, "model": "tiny \"m\"",
    "choices": [{"text": "Hello é\"\n", "index": 0, "logprobs": null, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
              "prompt_tokens_details": {"cached_tokens": 2}}})"));
}

TEST(CompletionAnswer, StreamedAnswer) {
  ApiRequest request;
  request.stream = true;
  CompletionAnswer answer(request, kNames, nullptr);
  EXPECT_EQ(answer.Add(0, Delta("")), "");
  const std::vector<Json> first = Events(answer.Add(0, Delta("a")));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0]["choices"][0]["text"], "a");
  EXPECT_EQ(first[0]["choices"][0]["finish_reason"], nullptr);
  EXPECT_EQ(first[0]["object"], "text_completion");
  EXPECT_FALSE(first[0].contains("usage"));
  const std::string rest = answer.Add(0, Last(pb::FINISH_REASON_STOP));
  EXPECT_TRUE(rest.ends_with("\n\ndata: [DONE]\n\n"));
  const std::vector<Json> last = Events(rest);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0]["choices"][0]["finish_reason"], "stop");
}

TEST(CompletionAnswer, EveryChoiceUnderItsIndex) {
  for (const bool stream : {false, true}) {
    ApiRequest request;
    request.stream = stream;
    request.request.mutable_sampling()->set_n(2);
    CompletionAnswer answer(request, kNames, nullptr);
    std::string bytes = answer.Add(0, Delta("a", {"a"}));
    for (const char* text : {"b", "c"}) {
      pb::GenerateResponse delta = Delta(text, {text});
      delta.mutable_choices(0)->set_index(1);
      bytes += answer.Add(0, delta);
    }
    pb::GenerateResponse last = Last(pb::FINISH_REASON_LENGTH, "!");
    pb::ChoiceDelta& second = *last.add_choices();
    second.set_index(1);
    second.set_text("?");
    second.set_finish_reason(pb::FINISH_REASON_STOP);
    bytes += answer.Add(0, last);
    std::map<int, std::string> texts;
    std::map<int, Json> reasons;
    const std::vector<Json> objects = stream ? Events(bytes) : std::vector<Json>{Json::parse(bytes)};
    EXPECT_EQ(objects.size(), stream ? 5u : 1u);
    for (const Json& object : objects) {
      EXPECT_EQ(object["choices"].size(), stream ? 1u : 2u);
      for (const Json& choice : object["choices"]) {
        const int index = choice["index"];
        texts[index] += choice["text"];
        reasons[index] = choice["finish_reason"];
        if (choice["text"] == "c") {
          EXPECT_EQ(choice["logprobs"]["text_offset"], Json({1})) << "counted by choice";
        }
      }
    }
    EXPECT_EQ(texts, (std::map<int, std::string>{{0, "a!"}, {1, "bc?"}}));
    EXPECT_EQ(reasons, (std::map<int, Json>{{0, "length"}, {1, "stop"}}));
  }
}

TEST(CompletionAnswer, UsageOfAStreamWhenAskedFor) {
  ApiRequest request;
  request.stream = request.include_usage = true;
  CompletionAnswer answer(request, kNames, nullptr);
  EXPECT_EQ(Events(answer.Add(0, Delta("a")))[0]["usage"], nullptr);
  const std::vector<Json> last = Events(answer.Add(0, Last(pb::FINISH_REASON_STOP)));
  ASSERT_EQ(last.size(), 2u);
  EXPECT_TRUE(last[0].contains("usage"));
  EXPECT_EQ(last[1]["choices"], Json::array());
  EXPECT_EQ(last[1]["usage"]["total_tokens"], 7);
}

TEST(CompletionAnswer, LogprobsOfTokensThatAreHalfACharacter) {
  ApiRequest request;
  request.stream = true;
  CompletionAnswer answer(request, kNames, nullptr);
  const Json first = Events(answer.Add(0, Delta("a", {"a", "\xe2\x80"})))[0]["choices"][0]["logprobs"];
  EXPECT_EQ(first["tokens"], Json({"a", "bytes:\\xe2\\x80"}));
  EXPECT_EQ(first["token_logprobs"], Json({-0.5, -0.5}));
  EXPECT_EQ(first["text_offset"], Json({0, 1}));
  EXPECT_EQ(first["top_logprobs"][0], Json({{"bytes:\\xe2\\x80", -9999.0}, {"a", -0.5}}));
  const Json second = Events(answer.Add(0, Delta("", {"\x9c", "b"})))[0]["choices"][0];  // no text, but news
  EXPECT_EQ(second["logprobs"]["tokens"], Json({"bytes:\\x9c", "b"}));
  EXPECT_EQ(second["logprobs"]["text_offset"], Json({2, 2}));
  EXPECT_EQ(second["text"], "");
}

TEST(CompletionAnswer, ThePromptsLogprobsByTokenId) {
  ApiRequest request;
  request.request.mutable_sampling()->set_n(2);
  request.prompt_logprobs = true;
  CompletionAnswer answer(request, kNames, nullptr);
  const auto add = [](pb::TokenLogprob& to, int id, const std::string& token, float logprob) {
    to.set_token_id(id);
    to.set_token(token);
    to.set_logprob(logprob);
  };
  pb::GenerateResponse first, more;
  for (int id : {3, 4, 5}) first.mutable_prompt()->add_token_ids(id);
  pb::TokenLogprobs& among_the_best = *first.mutable_prompt()->add_logprobs();
  add(*among_the_best.mutable_sampled(), 4, "a", -0.5f);
  add(*among_the_best.add_top(), 4, "a", -0.5f);
  pb::TokenLogprobs& not_among_them = *more.mutable_prompt()->add_logprobs();
  add(*not_among_them.mutable_sampled(), 5, "\xe2\x80", -std::numeric_limits<float>::infinity());
  add(*not_among_them.add_top(), 9, "b", -0.25f);
  for (const pb::GenerateResponse& response : {first, more, Delta("x")}) EXPECT_EQ(answer.Add(0, response), "");
  pb::GenerateResponse last = Last(pb::FINISH_REASON_STOP);
  last.add_choices()->set_index(1);
  const Json body = Json::parse(answer.Add(0, last));
  const Json expected = Json::parse(R"([null, {"4": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}},
      {"9": {"logprob": -0.25, "rank": 1, "decoded_token": "b"},
       "5": {"logprob": -9999.0, "rank": null, "decoded_token": "bytes:\\xe2\\x80"}}])");
  ASSERT_EQ(body["choices"].size(), 2u);
  for (const Json& choice : body["choices"]) EXPECT_EQ(choice["prompt_logprobs"], expected);
}

TEST(CompletionAnswer, SeveralPromptsUnderOneAnswer) {
  for (const bool stream : {false, true}) {
    ApiRequest request;
    request.prompts = {Prompt("p"), Prompt("q")};
    request.stream = stream;
    request.include_usage = true;
    CompletionAnswer answer(request, kNames, nullptr);
    std::string bytes = answer.Add(1, Delta("b"));
    bytes += answer.Add(1, Last(pb::FINISH_REASON_STOP));
    EXPECT_EQ(bytes.find("[DONE]"), std::string::npos);
    bytes += answer.Add(0, Last(pb::FINISH_REASON_LENGTH, "a"));
    std::map<int, std::string> texts;
    const std::vector<Json> objects = stream ? Events(bytes) : std::vector<Json>{Json::parse(bytes)};
    for (const Json& object : objects) {
      for (const Json& choice : object["choices"]) texts[choice["index"].get<int>()] += choice["text"];
    }
    EXPECT_EQ(texts, (std::map<int, std::string>{{0, "a"}, {1, "b"}}));
    EXPECT_EQ(objects.back()["usage"]["total_tokens"], 14);
    EXPECT_EQ(objects.back()["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  }
}

TEST(CompletionAnswer, UsageInEveryEvent) {
  ApiRequest request;
  request.stream = request.include_usage = request.continuous_usage = true;
  CompletionAnswer answer(request, kNames, nullptr);
  pb::GenerateResponse delta = Delta("a");
  for (int id : {1, 2, 3}) delta.mutable_prompt()->add_token_ids(id);
  delta.mutable_choices(0)->add_token_ids(7);
  const Json usage = Events(answer.Add(0, delta))[0]["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 3);
  EXPECT_EQ(usage["completion_tokens"], 1);
}

TEST(CompletionAnswer, TimingWhenAskedFor) {
  ApiRequest request;
  request.timing = true;
  CompletionAnswer answer(request, kNames, nullptr);
  pb::GenerateResponse last = Last(pb::FINISH_REASON_STOP, "x");
  last.mutable_timing()->set_ttft_ms(12.5);
  last.mutable_timing()->set_transfer_bytes(1 << 20);
  last.mutable_timing()->set_moves(1);
  pb::TimelineEvent& event = *last.mutable_timing()->add_timeline();
  event.set_name("piece_acked");
  event.set_amount(77);
  const Json timing = Json::parse(answer.Add(0, last))["timing"][0];
  EXPECT_EQ(timing["ttft_ms"], 12.5);
  EXPECT_EQ(timing["transfer_bytes"], 1 << 20);
  EXPECT_EQ(timing["moves"], 1);
  EXPECT_EQ(timing["timeline"][0]["name"], "piece_acked");
  EXPECT_EQ(timing["timeline"][0]["amount"], 77);
}

TEST(CompletionAnswer, EchoesThePrompt) {
  const TinyServedModel model;
  for (const bool as_ids : {false, true}) {
    const std::vector<int32_t> ids = model.Encode("hello");
    ApiRequest request;
    request.echo = request.no_answer = true;
    request.request.mutable_sampling()->set_logprobs(0);
    pb::GenerateResponse prompt;
    for (const int32_t id : ids) prompt.mutable_prompt()->add_token_ids(id);
    for (size_t i = 1; i < ids.size(); ++i) {
      pb::TokenLogprob& sampled = *prompt.mutable_prompt()->add_logprobs()->mutable_sampled();
      sampled.set_token(std::string(model.tokenizer().TokenBytes(ids[i])));
      sampled.set_logprob(-1);
    }
    if (!as_ids) request.request.set_text("hello");
    CompletionAnswer answer(request, kNames, &model.tokenizer());
    EXPECT_EQ(answer.Add(0, prompt), "");
    const Json body = Json::parse(answer.Add(0, Last(pb::FINISH_REASON_STOP, "unseen")));
    const Json& choice = body["choices"][0];
    EXPECT_EQ(choice["text"], "hello");
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_FALSE(choice.contains("prompt_logprobs"));
    EXPECT_EQ(body["usage"]["completion_tokens"], 0);
    std::string text;
    for (const Json& token : choice["logprobs"]["tokens"]) text += token;
    EXPECT_EQ(text, "hello");
    EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), ids.size());
    EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  }
}

TEST(ModelsBody, ListsTheModel) {
  ServedModel model;
  model.name = "tiny";
  model.root = "models/tiny.gguf";
  model.context_length = 512;
  const Json body = Json::parse(ModelsBody(model, 5));
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["data"][0]["id"], "tiny");
  EXPECT_EQ(body["data"][0]["root"], "models/tiny.gguf");
  EXPECT_EQ(body["data"][0]["max_model_len"], 512);
  EXPECT_EQ(Json::parse(*ModelBody(model, "tiny", 5)), body["data"][0]);
  EXPECT_EQ(ModelBody(model, "huge", 5).status().code(), absl::StatusCode::kNotFound);
}

// ---- errors ----

TEST(HttpError, CodesAndBodies) {
  const std::tuple<absl::Status, int, const char*> cases[] = {
      {absl::InvalidArgumentError("sampling.top_p: must be in (0, 1], got 1.5"), 400,
       R"({"message": "top_p: must be in (0, 1], got 1.5", "type": "invalid_request_error", "param": "top_p", "code": null})"},
      {absl::InvalidArgumentError("token_ids.ids: ids must be in [0, 9), got 9 at position 0"), 400,
       R"({"message": "prompt: ids must be in [0, 9), got 9 at position 0", "type": "invalid_request_error",
           "param": "prompt", "code": null})"},
      {absl::InvalidArgumentError("the body is not valid: JSON"), 400,
       R"({"message": "the body is not valid: JSON", "type": "invalid_request_error", "param": null, "code": null})"},
      {absl::NotFoundError("model: \"x\" is not served here"), 404,
       R"({"message": "model: \"x\" is not served here", "type": "invalid_request_error", "param": "model",
           "code": "model_not_found"})"},
      {absl::ResourceExhaustedError("full"), 429,
       R"({"message": "full", "type": "rate_limit_error", "param": null, "code": "rate_limit_exceeded"})"},
      {absl::UnavailableError("lost: worker"), 503,
       R"({"message": "lost: worker", "type": "server_error", "param": null, "code": "unavailable"})"},
      {absl::DeadlineExceededError("late"), 408,
       R"({"message": "late", "type": "timeout_error", "param": null, "code": "timeout"})"},
      {absl::InternalError("bug"), 500, R"({"message": "bug", "type": "server_error", "param": null, "code": null})"},
      {absl::FailedPreconditionError("a: b"), 500,
       R"({"message": "a: b", "type": "server_error", "param": null, "code": null})"},
  };
  for (const auto& [status, code, error] : cases) {
    EXPECT_EQ(HttpCode(status), code) << status;
    EXPECT_EQ(Json::parse(ErrorBody(status))["error"], Json::parse(error)) << status;
  }
  EXPECT_EQ(HttpCode(absl::OkStatus()), 200);
  // A name that was cut inside a character.
  EXPECT_THAT(ErrorBody(absl::NotFoundError("model: \"\xc3")), HasSubstr("model_not_found"));
}

// ---- heads ----

TEST(HttpHead, Bytes) {
  HttpHead head;
  head.keep_alive = true;
  head.request_id = "r1";
  EXPECT_EQ(HeadBytes(head, 429, "application/json", {{"Retry-After", "3"}}),
            "HTTP/1.1 429 Too Many Requests\r\nServer: sluice\r\nContent-Type: application/json\r\n"
            "Cache-Control: no-store\r\nX-Request-Id: r1\r\nRetry-After: 3\r\n\r\n");
  head.keep_alive = false;
  EXPECT_THAT(HeadBytes(head, 200, "x", {}), HasSubstr("\r\nConnection: close\r\n"));
  head.http10 = true;
  EXPECT_THAT(HeadBytes(head, 200, "x", {}), ::testing::Not(HasSubstr("Connection")));
  head.keep_alive = true;
  EXPECT_THAT(HeadBytes(head, 200, "x", {}), HasSubstr("\r\nConnection: keep-alive\r\n"));
}

TEST(HttpHead, PathsAndIds) {
  EXPECT_EQ(PathOf("/v1/models?a=/b"), "/v1/models");
  EXPECT_EQ(PathOf("http://host:80/v1/models?x"), "/v1/models");
  EXPECT_EQ(PathOf("http://host"), "/");
  EXPECT_EQ(PathOf("/a?b=http://c/d"), "/a");
  EXPECT_EQ(PathOf("*"), "*");
  EXPECT_EQ(PathOf(""), "");
  EXPECT_EQ(FitForTrace("00-abc 1", 8), "00-abc 1");
  for (const std::string bad : {"00-abc 12", "a\x80", "a\x01", "a\xff\xfe"}) EXPECT_EQ(FitForTrace(bad, 8), "") << bad;
  EXPECT_TRUE(IsRequestId("a-Z_9~"));
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("\xc3\xa9"), std::string("a\n"), std::string(257, 'a')}) {
    EXPECT_FALSE(IsRequestId(bad)) << bad;
  }
  EXPECT_EQ(RetryAfterSeconds(absl::ZeroDuration()), "1");
  EXPECT_EQ(RetryAfterSeconds(absl::Milliseconds(1001)), "2");
}

}  // namespace
}  // namespace sluice::router
