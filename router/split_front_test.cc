// The router's edge over loopback with scripted prefill and decode workers: what clients see of an answer that two
// workers give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "router/testing/front_world.h"

namespace sluice::router {
namespace {

using ::testing::HasSubstr;

class SplitFrontTest : public FrontWorld {
 protected:
  // P and D with these scripts, paired.
  void StartPair(FakeScript prefill, FakeScript decode) {
    ServerOptions options;
    options.core.policy.fallback = false;  // no worker does both
    StartRouter(options);
    for (FakeScript* script : {&prefill, &decode}) script->ids = {5, 6, 7};
    p_ = StartWorker(prefill, {.role = pb::ROLE_PREFILL, .incarnation = 1});
    d_ = StartWorker(decode, {.role = pb::ROLE_DECODE, .incarnation = 2});
  }

  struct Answer {
    grpc::Status status;
    std::vector<int32_t> ids;
    pb::GenerateResponse last;
  };
  Answer Generate(int max_tokens) {
    Answer answer;
    grpc::ClientContext context;
    pb::GenerateRequest request;
    request.set_text("hello");
    request.mutable_sampling()->set_max_tokens(max_tokens);
    auto reader = stub_->Generate(&context, request);
    pb::GenerateResponse response;
    while (reader->Read(&response)) {
      for (const auto& delta : response.choices()) {
        answer.ids.insert(answer.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      }
      answer.last = response;
    }
    answer.status = reader->Finish();
    return answer;
  }

  static std::vector<int32_t> Due(int tokens) {
    std::vector<int32_t> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(5 + i % 3);
    return ids;
  }
  void ExpectBothClean() {
    ExpectClean(*p_);
    ExpectClean(*d_);
  }

  std::unique_ptr<FakeWorker> p_;
  std::unique_ptr<FakeWorker> d_;
};

TEST_F(SplitFrontTest, AnAnswerOfTwoWorkersWhoeverIsHeardFirst) {
  StartPair({}, {});
  for (const auto& [p_delay, d_delay] : {std::pair(0, 30), std::pair(30, 0), std::pair(0, 0)}) {
    FakeScript prefill{.delay = absl::Milliseconds(p_delay), .ids = {5, 6, 7}};
    FakeScript decode{.delay = absl::Milliseconds(d_delay), .ids = {5, 6, 7}};
    p_->SetScript(prefill);
    d_->SetScript(decode);
    const Answer answer = Generate(9);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.ids, Due(9));
    std::vector<std::string> names;
    for (const auto& event : answer.last.timing().timeline()) names.push_back(event.name());
    EXPECT_THAT(names,
                ::testing::IsSupersetOf({"queued", "reserved", "prefilling", "first_token", "committed", "done"}));
  }
  EXPECT_EQ(p_->prefills(), 3);
  EXPECT_EQ(d_->reserves(), 3);
  EXPECT_EQ(p_->cancels() + d_->cancels() + d_->releases(), 0);
  ExpectBothClean();
}

TEST_F(SplitFrontTest, HealthAndErrorsNameTheMissingRole) {
  ServerOptions options;
  options.core.policy.fallback = false;
  StartRouter(options);
  auto p = StartWorker({}, {.role = pb::ROLE_PREFILL, .incarnation = 1});
  Answer answer = Generate(3);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("no decode worker is alive"));
  EXPECT_TRUE(Generate(1).status.ok()) << "one token needs none";
  auto d = StartWorker({}, {.role = pb::ROLE_DECODE, .incarnation = 2});
  EXPECT_TRUE(Generate(3).status.ok()) << "it waits for the pair";
  p->Stop(true);
  EXPECT_TRUE(Eventually([&] { return Generate(3).status.error_code() == grpc::StatusCode::UNAVAILABLE; }));
  EXPECT_THAT(Generate(3).status.error_message(), HasSubstr("no prefill worker is alive"));
}

TEST_F(SplitFrontTest, AMisfitServesNobody) {
  StartRouter();
  auto p = StartWorker({}, {.role = pb::ROLE_PREFILL, .incarnation = 1, .fits = false});
  auto d = StartWorker({}, {.role = pb::ROLE_DECODE, .incarnation = 2});
  const Answer answer = Generate(3);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("no prefill worker fits any decode worker"));
  EXPECT_EQ(d->reserves(), 0);
}

TEST_F(SplitFrontTest, AStopAtTheFirstTokenGivesTheLeaseBack) {
  StartPair({.stop_at_first = true}, {.delay = absl::InfiniteDuration()});
  const Answer answer = Generate(9);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.ids, Due(1));
  EXPECT_EQ(answer.last.choices(0).finish_reason(), pb::FINISH_REASON_STOP);
  EXPECT_TRUE(Eventually([&] { return d_->releases() == 1; }));
  ExpectBothClean();
}

TEST_F(SplitFrontTest, AnErrorOfEitherSideEndsTheOther) {
  StartPair({.tokens = 0, .fail_after = absl::StatusCode::kInternal}, {.delay = absl::InfiniteDuration()});
  EXPECT_EQ(Generate(9).status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(Eventually([&] { return d_->cancels() == 1; }));
  ExpectBothClean();
  p_->SetScript({.delay = absl::InfiniteDuration()});
  d_->SetScript({.tokens = 0, .fail_after = absl::StatusCode::kDataLoss});
  EXPECT_EQ(Generate(9).status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_TRUE(Eventually([&] { return p_->cancels() == 1; }));
  ExpectBothClean();
}

TEST_F(SplitFrontTest, CancelAndLossWhilePrefillingAndWhileDecoding) {
  const FakeScript never{.delay = absl::InfiniteDuration()};
  StartPair(never, never);
  for (const bool decoding : {false, true}) {
    p_->SetScript(decoding ? FakeScript{} : never);
    d_->SetScript(decoding ? FakeScript{.tokens = 3} : never);
    grpc::ClientContext context;
    pb::GenerateRequest request;
    request.set_text("hello");
    request.mutable_sampling()->set_max_tokens(9);
    auto reader = stub_->Generate(&context, request);
    pb::GenerateResponse response;
    EXPECT_TRUE(Eventually([&] { return d_->live() == 1 && (decoding ? p_->live() == 0 : p_->live() == 1); }));
    EXPECT_TRUE(!decoding || reader->Read(&response));
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    ExpectBothClean();
  }
  std::thread killer([&] {
    EXPECT_TRUE(Eventually([&] { return d_->live() == 1; }));
    d_->Stop(false);
  });
  const Answer answer = Generate(9);
  killer.join();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  ExpectBothClean();
}

TEST_F(SplitFrontTest, ManyStreamsOverTwoOfEach) {
  StartPair({}, {});
  auto p2 = StartWorker({.ids = {5, 6, 7}}, {.role = pb::ROLE_PREFILL, .incarnation = 3});
  auto d2 = StartWorker({.ids = {5, 6, 7}}, {.role = pb::ROLE_DECODE, .incarnation = 4});
  EXPECT_EQ(State().workers_size(), 4);
  // The new ones get work as soon as their pairs are up.
  EXPECT_TRUE(Eventually([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&, i] {
        const Answer answer = Generate(20 + i);
        EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
        EXPECT_EQ(answer.ids, Due(20 + i));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return p_->prefills() > 0 && p2->prefills() > 0 && d_->reserves() > 0 && d2->reserves() > 0;
  }));
  ExpectBothClean();
  ExpectClean(*p2);
  ExpectClean(*d2);
}

}  // namespace
}  // namespace sluice::router
