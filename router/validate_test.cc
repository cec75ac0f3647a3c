#include "router/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "router/testing/tiny_served_model.h"

namespace sluice::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kContext = 256;
constexpr uint64_t kDraw = 0xabcdef;

class ValidateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new TinyServedModel(kContext); }
  static void TearDownTestSuite() { delete model_; }

  static pb::GenerateRequest Request(const std::string& text = "hello") {
    pb::GenerateRequest request;
    request.set_text(text);
    return request;
  }
  static pb::GenerateRequest WithIds(int count) {
    pb::GenerateRequest request;
    for (int i = 0; i < count; ++i) request.mutable_token_ids()->add_ids(5);
    return request;
  }
  static absl::StatusOr<ValidRequest> Run(const pb::GenerateRequest& request, int capacity = 0) {
    return Validate(request, model_->served(), capacity, kDraw);
  }
  static std::string Why(const pb::GenerateRequest& request,
                         absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const auto result = Run(request);
    EXPECT_EQ(result.status().code(), code) << result.status();
    return std::string(result.status().message());
  }

  static TinyServedModel* model_;
};

TinyServedModel* ValidateTest::model_ = nullptr;

TEST_F(ValidateTest, FillsEveryDefault) {
  const auto valid = Run(Request());
  ASSERT_TRUE(valid.ok()) << valid.status();
  const pb::SequenceSpec& sequence = valid->sequence;
  const pb::SamplingParams& sampling = sequence.sampling();
  const int prompt = sequence.tokens_size();
  EXPECT_GT(prompt, 0);
  EXPECT_EQ(sequence.num_prompt_tokens(), prompt);
  EXPECT_EQ(sampling.max_tokens(), kContext - prompt);
  EXPECT_TRUE(sampling.has_temperature() && sampling.has_top_p() && sampling.has_top_k() && sampling.has_min_p());
  EXPECT_TRUE(sampling.has_min_tokens() && sampling.has_ignore_eos());
  EXPECT_EQ(sampling.temperature(), 0);
  EXPECT_EQ(sampling.top_p(), 1);
  EXPECT_EQ(sampling.n(), 1);
  EXPECT_TRUE(sampling.has_repetition_penalty() && sampling.has_presence_penalty() && sampling.has_frequency_penalty());
  EXPECT_EQ(sampling.repetition_penalty(), 1);
  EXPECT_FALSE(sampling.has_logprobs());
  EXPECT_EQ(sampling.seed(), kDraw);
  EXPECT_EQ(valid->request_id, "gen-0000000000abcdef");
  EXPECT_EQ(sequence.model(), model_->served().name);
  EXPECT_EQ(sequence.task(), "generate");
  EXPECT_GT(sequence.eos_token_ids_size(), 0);
  EXPECT_EQ(valid->timeout, absl::InfiniteDuration());
}

TEST_F(ValidateTest, ATraceContextIsBounded) {
  pb::GenerateRequest request = WithIds(3);
  request.mutable_trace()->set_traceparent(std::string(256, 'a'));
  request.mutable_trace()->set_tracestate(std::string(512, 'b'));
  EXPECT_TRUE(Run(request).ok());
  request.mutable_trace()->set_tracestate(std::string(513, 'b'));
  EXPECT_THAT(std::string(Run(request).status().message()),
              StartsWith("trace.tracestate: must have at most 512 bytes"));
  request.mutable_trace()->set_traceparent(std::string(257, 'a'));
  EXPECT_THAT(std::string(Run(request).status().message()),
              StartsWith("trace.traceparent: must have at most 256 bytes"));
}

TEST_F(ValidateTest, KeepsWhatTheClientSaid) {
  pb::GenerateRequest request = WithIds(3);
  request.set_request_id("mine");
  request.set_model("tiny.gguf");
  request.set_priority(-7);
  request.set_tenant("t");
  request.set_cache_salt("s");
  request.set_timeout_ms(1500);
  request.mutable_trace()->set_traceparent("00-1");
  pb::SamplingParams& in = *request.mutable_sampling();
  in.set_temperature(0.7f);
  in.set_top_p(0.9f);
  in.set_top_k(-1);
  in.set_min_p(0.1f);
  in.set_seed(0);
  in.set_logprobs(0);
  in.set_max_tokens(9);
  in.set_min_tokens(9);
  in.set_ignore_eos(true);
  in.add_stop_token_ids(4);
  in.add_stop("END");
  in.set_n(1);
  in.set_repetition_penalty(1.2f);
  in.set_presence_penalty(-2);
  in.set_frequency_penalty(0.5f);
  (*in.mutable_logit_bias())[3] = -100;
  (*in.mutable_logit_bias())[0] = 2.5f;
  const auto valid = Run(request);
  ASSERT_TRUE(valid.ok()) << valid.status();
  const pb::SamplingParams& out = valid->sequence.sampling();
  EXPECT_EQ(valid->request_id, "mine");
  EXPECT_EQ(valid->timeout, absl::Milliseconds(1500));
  EXPECT_THAT(valid->stop, ElementsAre("END"));
  EXPECT_EQ(valid->sequence.priority(), -7);
  EXPECT_EQ(valid->sequence.tenant(), "t");
  EXPECT_EQ(valid->sequence.cache_salt(), "s");
  EXPECT_EQ(valid->sequence.trace().traceparent(), "00-1");
  EXPECT_EQ(out.temperature(), 0.7f);
  EXPECT_EQ(out.top_k(), 0);
  EXPECT_EQ(out.seed(), 0u);
  EXPECT_TRUE(out.has_logprobs());
  EXPECT_EQ(out.max_tokens(), 9);
  EXPECT_EQ(out.min_tokens(), 9);
  EXPECT_TRUE(out.ignore_eos());
  EXPECT_THAT(out.stop_token_ids(), ElementsAre(4));
  EXPECT_EQ(out.repetition_penalty(), 1.2f);
  EXPECT_EQ(out.presence_penalty(), -2.0f);
  EXPECT_EQ(out.frequency_penalty(), 0.5f);
  EXPECT_THAT(out.logit_bias(), testing::UnorderedElementsAre(testing::Pair(3, -100.0f), testing::Pair(0, 2.5f)));
}

TEST_F(ValidateTest, RawTextMayNameSpecialTokens) {
  const auto valid = Run(Request("<|im_start|>"));
  ASSERT_TRUE(valid.ok());
  EXPECT_EQ(valid->sequence.tokens(valid->sequence.tokens_size() - 1), 1);
}

TEST_F(ValidateTest, RefusesBadPrompts) {
  EXPECT_THAT(Why(pb::GenerateRequest()), StartsWith("prompt: is missing"));
  EXPECT_THAT(Why(Request("")), StartsWith("text: the prompt must not be empty"));
  pb::GenerateRequest empty;
  empty.mutable_token_ids();
  EXPECT_THAT(Why(empty), StartsWith("token_ids.ids: the prompt must not be empty"));
  pb::GenerateRequest request = WithIds(2);
  request.mutable_token_ids()->set_ids(1, model_->served().vocab);
  EXPECT_THAT(Why(request),
              StartsWith(absl::StrCat("token_ids.ids: ids must be in [0, ", model_->served().vocab, ")")));
  request.mutable_token_ids()->set_ids(1, -1);
  EXPECT_THAT(Why(request), HasSubstr("got -1 at position 1"));
}

TEST_F(ValidateTest, NamesBothNumbersAndTheContext) {
  pb::GenerateRequest request = WithIds(100);
  request.mutable_sampling()->set_max_tokens(156);
  EXPECT_TRUE(Run(request).ok());
  request.mutable_sampling()->set_max_tokens(157);
  EXPECT_THAT(Why(request), StartsWith("sampling.max_tokens: prompt (100 tokens) + max_tokens (157) is more than the "
                                       "context of 256 tokens"));
  request.mutable_sampling()->set_max_tokens(std::numeric_limits<int32_t>::max());
  EXPECT_THAT(Why(request), HasSubstr("2147483647"));
  EXPECT_TRUE(Run(WithIds(255)).ok());
  EXPECT_THAT(Why(WithIds(256)), HasSubstr("256 tokens and leaves no room"));
  EXPECT_THAT(Why(Request(std::string(1 << 20, 'x'))), HasSubstr("can't fit the context")) << "before any work";
}

TEST_F(ValidateTest, CapacityBoundsOnlyTheDefault) {
  EXPECT_EQ(Run(WithIds(10), 64)->sequence.sampling().max_tokens(), 54);
  EXPECT_EQ(Run(WithIds(10), 4096)->sequence.sampling().max_tokens(), kContext - 10);
  EXPECT_EQ(Run(WithIds(10), 5)->sequence.sampling().max_tokens(), kContext - 10) << "the core says that it never fits";
  pb::GenerateRequest request = WithIds(10);
  request.mutable_sampling()->set_max_tokens(100);
  EXPECT_EQ(Run(request, 64)->sequence.sampling().max_tokens(), 100);
}

TEST_F(ValidateTest, OtherModelsAreNotFound) {
  pb::GenerateRequest request = Request();
  request.set_model("gpt-17");
  EXPECT_THAT(Why(request, absl::StatusCode::kNotFound), StartsWith("model: \"gpt-17\" is not served here"));
  for (const std::string& name : {model_->served().name, std::string("tiny.gguf"), std::string("models/tiny.gguf")}) {
    request.set_model(name);
    EXPECT_TRUE(Run(request).ok()) << name;
  }
}

TEST_F(ValidateTest, EveryBadNumberIsNamed) {
  const float nan = std::nanf("");
  const float inf = std::numeric_limits<float>::infinity();
  using Set = std::function<void(pb::GenerateRequest&)>;
  const auto sampling = [](auto setter, auto value) -> Set {
    return [=](pb::GenerateRequest& r) { (r.mutable_sampling()->*setter)(value); };
  };
  const auto bias = [](int32_t id, float value) -> Set {
    return [=](pb::GenerateRequest& r) { (*r.mutable_sampling()->mutable_logit_bias())[id] = value; };
  };
  using S = pb::SamplingParams;
  const std::vector<std::pair<std::string, Set>> cases = {
      {"sampling.temperature: must be a finite number >= 0, got nan", sampling(&S::set_temperature, nan)},
      {"sampling.temperature: must be a finite number >= 0, got inf", sampling(&S::set_temperature, inf)},
      {"sampling.temperature: must be a finite number >= 0, got -1", sampling(&S::set_temperature, -1.0f)},
      {"sampling.top_p: must be in (0, 1], got 0", sampling(&S::set_top_p, 0.0f)},
      {"sampling.top_p: must be in (0, 1], got 1.5", sampling(&S::set_top_p, 1.5f)},
      {"sampling.top_p: must be in (0, 1], got nan", sampling(&S::set_top_p, nan)},
      {"sampling.min_p: must be in [0, 1], got -0.5", sampling(&S::set_min_p, -0.5f)},
      {"sampling.min_p: must be in [0, 1], got nan", sampling(&S::set_min_p, nan)},
      {"sampling.top_k: must be >= -1", sampling(&S::set_top_k, -2)},
      {"sampling.logprobs: must be in [0, 20], got 21", sampling(&S::set_logprobs, 21)},
      {"sampling.logprobs: must be in [0, 20], got -1", sampling(&S::set_logprobs, -1)},
      {"sampling.max_tokens: must be >= 1, got 0", sampling(&S::set_max_tokens, 0)},
      {"sampling.max_tokens: must be >= 1, got -5", sampling(&S::set_max_tokens, -5)},
      {"sampling.min_tokens: must be >= 0, got -1", sampling(&S::set_min_tokens, -1)},
      {"sampling.min_tokens: must be at most max_tokens", sampling(&S::set_min_tokens, 10000)},
      {"sampling.n: must be in [1, 16], got 0", sampling(&S::set_n, 0)},
      {"sampling.n: must be in [1, 16], got 17", sampling(&S::set_n, 17)},
      {"sampling.repetition_penalty: must be a finite number > 0", sampling(&S::set_repetition_penalty, 0.0f)},
      {"sampling.repetition_penalty: must be a finite number > 0", sampling(&S::set_repetition_penalty, nan)},
      {"sampling.presence_penalty: must be in [-2, 2], got 3", sampling(&S::set_presence_penalty, 3.0f)},
      {"sampling.frequency_penalty: must be in [-2, 2], got nan", sampling(&S::set_frequency_penalty, nan)},
      {"sampling.presence_penalty: must be in [-2, 2], got -2.5", sampling(&S::set_presence_penalty, -2.5f)},
      {"sampling.frequency_penalty: must be in [-2, 2], got 2.25", sampling(&S::set_frequency_penalty, 2.25f)},
      {"sampling.logit_bias: values must be in [-100, 100], got 100.5 for token 1", bias(1, 100.5f)},
      {"sampling.logit_bias: values must be in [-100, 100], got nan for token 1", bias(1, nan)},
      {"sampling.logit_bias: ids must be in [0, ", bias(-1, 1.0f)},
      {"sampling.logit_bias: ids must be in [0, ", bias(1 << 30, 1.0f)},
      {"sampling.logit_bias: at most 1024 tokens are allowed, got 1025",
       [](auto& r) {
         for (int i = 0; i < 1025; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1;
       }},
      {"sampling.prompt_logprobs: must be in [0, 20], got -1", sampling(&S::set_prompt_logprobs, -1)},
      {"sampling.prompt_logprobs: must be in [0, 20], got 21", sampling(&S::set_prompt_logprobs, 21)},
      {"sampling.stop_token_ids: ids must be in", sampling(&S::add_stop_token_ids, -1)},
      {"sampling.stop: strings must not be empty", [](auto& r) { r.mutable_sampling()->add_stop(""); }},
      {"sampling.stop: strings must have at most 1024 bytes",
       [](auto& r) { r.mutable_sampling()->add_stop(std::string(1025, 'x')); }},
      {"sampling.stop: at most 16 strings are allowed, got 17",
       [](auto& r) {
         for (int i = 0; i < 17; ++i) r.mutable_sampling()->add_stop("x");
       }},
      {"adapter: is not supported yet", [](auto& r) { r.set_adapter("lora"); }},
      {"task: must be", [](auto& r) { r.set_task("embed"); }},
      {"timeout_ms: must be > 0, got 0", [](auto& r) { r.set_timeout_ms(0); }},
      {"timeout_ms: must be > 0, got -1", [](auto& r) { r.set_timeout_ms(-1); }},
      {"priority: must be in [-1000, 1000], got 1001", [](auto& r) { r.set_priority(1001); }},
      {"request_id: must have at most 256 bytes", [](auto& r) { r.set_request_id(std::string(257, 'x')); }},
      {"tenant: must have at most 256 bytes", [](auto& r) { r.set_tenant(std::string(257, 'x')); }},
      {"cache_salt: must have at most 256 bytes", [](auto& r) { r.set_cache_salt(std::string(257, 'x')); }},
  };
  for (const auto& [message, set] : cases) {
    pb::GenerateRequest request = Request();
    set(request);
    EXPECT_THAT(Why(request), StartsWith(message));
  }
}

}  // namespace
}  // namespace sluice::router
