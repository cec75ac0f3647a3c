#include "worker/request_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/error_info.h"
#include "worker/testing/messages.h"

namespace sluice::worker {
namespace {

absl::Time At(int ms) {
  return absl::UnixEpoch() + absl::Milliseconds(ms);
}

class RequestTableTest : public testing::Test {
 protected:
  uint64_t Add(const std::string& id, StreamId stream = 1, int deadline_ms = 0, bool leased = true) {
    RequestTable::Arrival arrival{.stream = stream, .key = Key(id), .received = At(100), .leased = leased};
    if (deadline_ms > 0) arrival.deadline = At(deadline_ms);
    return table_.Add(arrival);
  }
  std::vector<v1::WorkerEvent> Events() {
    std::vector<v1::WorkerEvent> events;
    for (const Outgoing& out : table_.TakeOutgoing()) {
      for (const v1::WorkerEvent& event : out.message.events()) events.push_back(event);
    }
    return events;
  }
  RequestTable table_{absl::Seconds(1)};
};

TEST_F(RequestTableTest, ProgressCountsFromTheReceipt) {
  const uint64_t id = Add("a");
  table_.AddProgress(id, "x", At(130), 7);
  const auto events = Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].progress().events(0).name(), "x");
  EXPECT_EQ(events[0].progress().events(0).at_ms(), 30.0);
  EXPECT_EQ(events[0].progress().events(0).amount(), 7);
}

TEST_F(RequestTableTest, AnUpdateWaitsForTheNextEventAndReplacesTheOneBefore) {
  const uint64_t a = Add("a"), b = Add("b");
  table_.UpdateProgress(a, "x", At(110), 1);
  table_.UpdateProgress(a, "x", At(120), 2);
  table_.UpdateProgress(b, "x", At(110), 5);
  EXPECT_TRUE(Events().empty()) << "it is worth no message of its own";
  table_.AddProgress(a, "y", At(130));
  const auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].progress().events(0).name(), "x");
  EXPECT_EQ(events[0].progress().events(0).amount(), 2);
  EXPECT_EQ(events[0].progress().events(0).at_ms(), 20.0);
  EXPECT_EQ(events[1].progress().events(0).name(), "y");
  table_.AddProgress(a, "z", At(140));
  EXPECT_EQ(Events().size(), 1u) << "it is sent once";
  table_.EndLater(b, std::nullopt);
  table_.Ended(b);
  EXPECT_TRUE(Events().empty());
}

TEST_F(RequestTableTest, ThePromptsLogprobsGoWithTheFirstTokensOfWhicheverChoice) {
  const uint64_t id = Add("a");
  engine::TokenOutput second;
  second.id = id;
  second.choice = 1;
  engine::TokenOutput first = second;
  first.choice = 0;
  first.prompt.push_back({.token = 8, .logprob = -0.5f, .top = {{9, -0.25f}}});
  table_.KeepPrompt(second);
  table_.KeepPrompt(first);
  table_.AddToken(second);
  table_.AddToken(first);
  const auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].tokens().choice(), 1);
  ASSERT_EQ(events[0].tokens().prompt_logprobs_size(), 1);
  EXPECT_EQ(events[0].tokens().prompt_logprobs(0).sampled().token_id(), 8);
  EXPECT_EQ(events[0].tokens().prompt_logprobs(0).sampled().logprob(), -0.5f);
  EXPECT_EQ(events[0].tokens().prompt_logprobs(0).top(0).token_id(), 9);
  EXPECT_EQ(events[0].tokens().logprobs_size(), 0);
  EXPECT_EQ(events[1].tokens().prompt_logprobs_size(), 0) << "once";
}

TEST_F(RequestTableTest, WithoutALeaseOnlyTheDeadlineIsATimer) {
  Add("a", 1, 0, /*leased=*/false);
  EXPECT_EQ(table_.NextTimer(), absl::InfiniteFuture());
  const uint64_t id = Add("b", 1, 5000, /*leased=*/false);
  EXPECT_EQ(table_.NextTimer(), At(5000));
  EXPECT_TRUE(table_.TakeExpired(At(4999)).empty());
  EXPECT_THAT(table_.TakeOverdue(At(5000)), testing::ElementsAre(id));
}

TEST_F(RequestTableTest, LastWordsAreSaidOnceWhetherSoonOrLate) {
  for (const bool soon : {false, true}) {
    const uint64_t id = Add("a", 1, 5000);
    table_.EndLater(id, MakeError(v1::DEADLINE, "late"));
    EXPECT_EQ(table_.NextTimer(), absl::InfiniteFuture());
    EXPECT_TRUE(Events().empty());
    if (soon) table_.SayNow(id);
    table_.Ended(id);
    const auto events = Events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].failed().error().reason(), v1::DEADLINE);
    EXPECT_EQ(table_.size(), 0u);
    EXPECT_TRUE(table_.OfStream(1).empty());
  }
}

TEST_F(RequestTableTest, SilentOnesGiveTheirKeyBackAtOnce) {
  const uint64_t old = Add("a");
  table_.EndLater(old, std::nullopt);
  EXPECT_EQ(table_.Find(1, Key("a")), 0u);
  const uint64_t next = Add("a");
  table_.Ended(old);
  EXPECT_EQ(table_.Find(1, Key("a")), next);
  EXPECT_TRUE(Events().empty());
}

TEST_F(RequestTableTest, OnlyItsOwnStreamRenewsALease) {
  const uint64_t id = Add("a");
  table_.Renew(2, id, At(900));
  EXPECT_EQ(table_.NextTimer(), At(1100));
  table_.Renew(1, id, At(900));
  EXPECT_EQ(table_.NextTimer(), At(1900));
}

}  // namespace
}  // namespace sluice::worker
