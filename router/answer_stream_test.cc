#include "router/answer_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "router/testing/tiny_served_model.h"

namespace sluice::router {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

const absl::Time kStart = absl::UnixEpoch();
constexpr int32_t kEos = 2;  // <|im_end|> of the tiny model

class AnswerStreamTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new TinyServedModel(); }
  static void TearDownTestSuite() { delete model_; }

  static ValidRequest Request(std::vector<std::string> stop = {}) {
    pb::GenerateRequest request;
    request.set_text("hi");
    request.set_request_id("r");
    for (std::string& s : stop) request.mutable_sampling()->add_stop(std::move(s));
    return *Validate(request, model_->served(), 0, 7);
  }
  static AnswerStream Stream(const ValidRequest& request) {
    return AnswerStream(&model_->tokenizer(), request, kStart);
  }
  static ClientTokens Tokens(const std::vector<int32_t>& ids, absl::Time at = kStart) {
    ClientTokens event;
    event.at = at;
    for (int32_t id : ids) event.tokens.add_token_ids(id);
    return event;
  }
  static ClientEnd End(pb::FinishReason reason) {
    ClientEnd event;
    event.at = kStart + absl::Milliseconds(100);
    event.reasons = {reason};
    for (const auto& [name, at] : std::vector<std::pair<std::string, double>>{
             {"queued", 0}, {"reserved", 3}, {"first_token", 20}, {"done", 100}}) {
      event.timeline.emplace_back().set_name(name);
      event.timeline.back().set_at_ms(at);
    }
    return event;
  }

  // A whole answer, some tokens at a time.
  struct Answer {
    std::string text;
    std::vector<int32_t> ids;
    pb::GenerateResponse last;
    bool stop_found = false;
  };
  static Answer Play(const ValidRequest& request, const std::vector<int32_t>& ids, size_t batch) {
    AnswerStream stream = Stream(request);
    Answer answer;
    const auto take = [&](const pb::GenerateResponse& response) {
      for (const pb::ChoiceDelta& delta : response.choices()) {
        answer.text += delta.text();
        answer.ids.insert(answer.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      }
    };
    for (size_t i = 0; i < ids.size(); i += batch) {
      const size_t end = std::min(ids.size(), i + batch);
      const auto output = stream.OnTokens(Tokens({ids.begin() + long(i), ids.begin() + long(end)}));
      for (const auto& response : output.responses) take(response);
      EXPECT_FALSE(answer.stop_found && output.stop_found) << "said once";
      answer.stop_found = answer.stop_found || output.stop_found;
    }
    answer.last = stream.OnEnd(End(answer.stop_found ? pb::FINISH_REASON_STOP : pb::FINISH_REASON_LENGTH));
    take(answer.last);
    return answer;
  }

  static TinyServedModel* model_;
};

TinyServedModel* AnswerStreamTest::model_ = nullptr;

TEST_F(AnswerStreamTest, OpensWithThePromptAndClosesWithUsageAndTiming) {
  const ValidRequest request = Request();
  AnswerStream stream = Stream(request);
  const std::vector<int32_t> ids = model_->Encode("ab");
  const auto first = stream.OnTokens(Tokens({ids[0]}, kStart + absl::Milliseconds(20)));
  ASSERT_EQ(first.responses.size(), 2u);
  EXPECT_EQ(first.responses[0].request_id(), "r");
  EXPECT_EQ(first.responses[0].prompt().seed(), 7u);
  EXPECT_EQ(first.responses[0].prompt().model(), model_->served().name);
  EXPECT_THAT(first.responses[0].prompt().token_ids(), ElementsAreArray(request.sequence.tokens()));
  EXPECT_THAT(first.responses[1].choices(0).token_ids(), ElementsAre(ids[0]));
  const auto second = stream.OnTokens(Tokens({ids.begin() + 1, ids.end()}, kStart + absl::Milliseconds(60)));
  ASSERT_EQ(second.responses.size(), 1u);
  const pb::GenerateResponse last = stream.OnEnd(End(pb::FINISH_REASON_LENGTH));
  EXPECT_EQ(last.choices(0).finish_reason(), pb::FINISH_REASON_LENGTH);
  EXPECT_EQ(last.usage().prompt_tokens(), request.sequence.num_prompt_tokens());
  EXPECT_EQ(last.usage().completion_tokens(), int(ids.size()));
  EXPECT_EQ(last.timing().queue_ms(), 3);
  EXPECT_EQ(last.timing().ttft_ms(), 20);
  EXPECT_EQ(last.timing().total_ms(), 100);
  EXPECT_DOUBLE_EQ(last.timing().tpot_ms(), 40.0 / double(ids.size() - 1));
  EXPECT_EQ(last.timing().timeline_size(), 4);
}

TEST_F(AnswerStreamTest, ThePromptsLogprobsComeInPartsBeforeTheFirstToken) {
  AnswerStream stream = Stream(Request());
  ClientTokens event = Tokens({model_->Encode("a")[0]});
  constexpr int kTokens = 50000;
  for (int i = 0; i < kTokens; ++i) {
    pb::TokenLogprobs& logprobs = *event.tokens.add_prompt_logprobs();
    for (int top = 0; top < 5; ++top) logprobs.add_top()->set_token_id(20);
    logprobs.mutable_sampled()->set_token_id(5 + i % 100);
  }
  const auto output = stream.OnTokens(event);
  ASSERT_GT(output.responses.size(), 2u);
  pb::PromptInfo whole;
  for (size_t i = 0; i + 1 < output.responses.size(); ++i) {
    EXPECT_EQ(output.responses[i].choices_size(), 0);
    EXPECT_LT(output.responses[i].ByteSizeLong(), size_t{4} << 20) << "gRPC's default limit";
    whole.MergeFrom(output.responses[i].prompt());
  }
  EXPECT_EQ(output.responses.back().choices(0).token_ids_size(), 1);
  EXPECT_FALSE(output.responses.back().has_prompt());
  EXPECT_EQ(whole.seed(), 7u);
  EXPECT_EQ(whole.token_ids_size(), Request().sequence.num_prompt_tokens());
  ASSERT_EQ(whole.logprobs_size(), kTokens);
  for (int i = 0; i < kTokens; ++i) {
    const pb::TokenLogprobs& logprobs = whole.logprobs(i);
    ASSERT_EQ(logprobs.sampled().token_id(), 5 + i % 100) << "in order";
    ASSERT_EQ(logprobs.sampled().token(), model_->tokenizer().TokenBytes(5 + i % 100));
    ASSERT_EQ(logprobs.top(4).token(), model_->tokenizer().TokenBytes(20));
  }
  EXPECT_EQ(stream.OnTokens(Tokens({6})).responses.size(), 1u);
}

TEST_F(AnswerStreamTest, TheQueueEndsWhereTheWorkBegins) {
  const auto queue_ms = [](const std::vector<std::pair<std::string, double>>& timeline) {
    ClientEnd end = End(pb::FINISH_REASON_LENGTH);
    end.timeline.clear();
    for (const auto& [name, at] : timeline) {
      end.timeline.emplace_back().set_name(name);
      end.timeline.back().set_at_ms(at);
    }
    return Stream(Request()).OnEnd(end).timing().queue_ms();
  };
  EXPECT_EQ(queue_ms({{"queued", 0}, {"prefilling", 7}, {"first_token", 20}}), 7) << "one token: nothing is reserved";
  EXPECT_EQ(queue_ms({{"queued", 0}, {"reserved", 3}, {"prefilling", 4}, {"first_token", 20}}), 3);
  EXPECT_EQ(queue_ms({{"reserved", 3}, {"prefilling", 4}, {"reserved", 9}, {"prefilling", 11}}), 9) << "the last try";
}

TEST_F(AnswerStreamTest, TextIsTheSameHoweverTokensAreBatched) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 rng(seed);
  const ValidRequest request = Request();
  for (int round = 0; round < 100; ++round) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(int32_t(3 + rng() % 256));  // any bytes, so broken characters too
    const Answer one = Play(request, ids, 1);
    const Answer many = Play(request, ids, 1 + rng() % 9);
    EXPECT_EQ(one.text, many.text) << "seed " << seed;
    EXPECT_EQ(one.ids, ids);
    EXPECT_EQ(many.last.usage().completion_tokens(), 40);
  }
}

TEST_F(AnswerStreamTest, AStopStringEndsTheAnswerBeforeIt) {
  const std::vector<int32_t> ids = model_->Encode("one two STOP three");
  const size_t upto = [&] {
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      text += model_->tokenizer().TokenBytes(ids[i]);
      if (text.find("STOP") != std::string::npos) return i + 1;
    }
    return ids.size();
  }();
  for (size_t batch : {size_t{1}, size_t{3}, ids.size()}) {
    const Answer answer = Play(Request({"STOP"}), ids, batch);
    EXPECT_TRUE(answer.stop_found);
    EXPECT_EQ(answer.text, "one two ");
    EXPECT_EQ(answer.ids.size(), upto) << "tokens after the match are not reported";
    EXPECT_EQ(answer.last.usage().completion_tokens(), int(upto));
    EXPECT_EQ(answer.last.choices(0).finish_reason(), pb::FINISH_REASON_STOP);
  }
}

TEST_F(AnswerStreamTest, EachChoiceHasItsOwnTextAndStop) {
  pb::GenerateRequest asked;
  asked.set_text("hi");
  asked.mutable_sampling()->set_n(2);
  asked.mutable_sampling()->add_stop("STOP");
  const ValidRequest request = *Validate(asked, model_->served(), 0, 7);
  AnswerStream stream = Stream(request);
  const auto feed = [&](int choice, const std::string& text) {
    ClientTokens event = Tokens(model_->Encode(text));
    event.tokens.set_choice(choice);
    return stream.OnTokens(event);
  };
  EXPECT_FALSE(feed(0, "one ST").stop_found);
  const AnswerStream::Output other = feed(1, "OP two");  // no match across choices
  EXPECT_FALSE(other.stop_found);
  EXPECT_EQ(other.responses.back().choices(0).index(), 1);
  EXPECT_EQ(other.responses.back().choices(0).text(), "OP two");
  EXPECT_TRUE(feed(0, "OP").stop_found);
  EXPECT_TRUE(feed(0, " more").responses.empty());
  EXPECT_FALSE(feed(1, " three").stop_found);
  ClientEnd end = End(pb::FINISH_REASON_LENGTH);
  end.reasons = {pb::FINISH_REASON_STOP, pb::FINISH_REASON_LENGTH};
  const pb::GenerateResponse last = stream.OnEnd(end);
  ASSERT_EQ(last.choices_size(), 2);
  EXPECT_EQ(last.choices(0).finish_reason(), pb::FINISH_REASON_STOP);
  EXPECT_EQ(last.choices(1).finish_reason(), pb::FINISH_REASON_LENGTH);
  EXPECT_EQ(last.usage().prompt_tokens(), request.sequence.num_prompt_tokens()) << "once";
  size_t tokens = 0;
  for (const char* text : {"one ST", "OP", "OP two", " three"}) tokens += model_->Encode(text).size();
  EXPECT_LE(size_t(last.usage().completion_tokens()), tokens);
  EXPECT_GT(size_t(last.usage().completion_tokens()),
            model_->Encode("one ST").size() + model_->Encode("OP two").size());
}

TEST_F(AnswerStreamTest, WhatOnlyLookedLikeAStopStringIsTextAfterAll) {
  const Answer answer = Play(Request({"STOP"}), model_->Encode("one STO"), 1);
  EXPECT_FALSE(answer.stop_found);
  EXPECT_EQ(answer.text, "one STO");
  EXPECT_EQ(answer.last.choices(0).text(), "STO");
  EXPECT_EQ(answer.last.choices(0).finish_reason(), pb::FINISH_REASON_LENGTH);
}

TEST_F(AnswerStreamTest, HalfACharacterAtTheEndIsReplaced) {
  const std::vector<int32_t> ids = model_->Encode("x\xF0\x9F\x98\x80");
  const Answer whole = Play(Request(), ids, 1);
  EXPECT_EQ(whole.text, "x\xF0\x9F\x98\x80");
  const Answer half = Play(Request(), {ids.begin(), ids.end() - 1}, 1);
  EXPECT_EQ(half.text, "x\xEF\xBF\xBD");
}

TEST_F(AnswerStreamTest, EndTokensCountButYieldNoText) {
  std::vector<int32_t> ids = model_->Encode("ab");
  ids.push_back(kEos);
  const Answer answer = Play(Request(), ids, 2);
  EXPECT_EQ(answer.text, "ab");
  EXPECT_EQ(answer.ids, ids);
  EXPECT_EQ(answer.last.usage().completion_tokens(), int(ids.size()));

  ValidRequest stops_at_b = Request();
  const int32_t b = model_->Encode("b").front();
  stops_at_b.sequence.mutable_sampling()->add_stop_token_ids(b);
  const Answer stopped = Play(stops_at_b, {model_->Encode("a").front(), b}, 1);
  EXPECT_EQ(stopped.text, "a");
  EXPECT_THAT(stopped.ids, ElementsAre(model_->Encode("a").front(), b));
}

TEST_F(AnswerStreamTest, LogprobsCarryTheBytesOfTheirTokens) {
  AnswerStream stream = Stream(Request());
  const std::vector<int32_t> ids = model_->Encode("ab");
  ClientTokens event = Tokens({ids[0]});
  pb::TokenLogprobs& logprobs = *event.tokens.add_logprobs();
  logprobs.mutable_sampled()->set_token_id(ids[0]);
  logprobs.mutable_sampled()->set_logprob(-1.5f);
  logprobs.add_top()->set_token_id(3);
  const auto output = stream.OnTokens(event);
  const pb::TokenLogprobs& got = output.responses.back().choices(0).logprobs(0);
  EXPECT_EQ(got.sampled().token(), std::string(model_->tokenizer().TokenBytes(ids[0])));
  EXPECT_EQ(got.sampled().logprob(), -1.5f);
  EXPECT_EQ(got.top(0).token(), std::string(model_->tokenizer().TokenBytes(3)));
}

}  // namespace
}  // namespace sluice::router
