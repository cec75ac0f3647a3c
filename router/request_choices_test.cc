// The request machine over several choices: which worker ends which choice, in every order that may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "router/request.h"

namespace sluice::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();
constexpr uint64_t kP = 50;
constexpr uint64_t kD = 77;
constexpr Origin kFromP{kP, 1};
constexpr Origin kFromD{kD, 1};
constexpr auto kStop = pb::FINISH_REASON_STOP;
constexpr auto kLength = pb::FINISH_REASON_LENGTH;

// Who never moves: what happens to an attempt is what happens to the request.
const RequestOptions kNoMoves{.moves = {.in_a_row = 0}};

Request MakeRequest(int n, int max_tokens = 8) {
  Submit submit{.call = 1, .request_id = "r", .sequence = {}, .received = kStart};
  for (int i = 0; i < 5; ++i) submit.sequence.add_tokens(i);
  submit.sequence.set_num_prompt_tokens(5);
  submit.sequence.mutable_sampling()->set_max_tokens(max_tokens);
  submit.sequence.mutable_sampling()->set_n(n);
  return Request(std::move(submit), "r/1", kNoMoves);
}

pb::LeaseGranted Granted() {
  pb::LeaseGranted granted;
  granted.set_lease_id(9);
  return granted;
}

// Of P and D, and of a worker of role both, which is D here.
Request Split(int n) {
  Request request = MakeRequest(n);
  request.Dispatch(0, {{kD, "D"}, {kP, "P"}}, kStart);
  request.OnGranted(kFromD, Granted(), kStart);
  return request;
}

Request Both(int n) {
  Request request = MakeRequest(n);
  request.Dispatch(0, {{kD, "D"}, {}}, kStart);
  request.OnGranted(kFromD, Granted(), kStart);
  return request;
}

Transition Token(Request& r, const Origin& from, int choice, int index) {
  pb::Tokens tokens;
  tokens.set_choice(choice);
  tokens.set_first_index(index);
  tokens.add_token_ids(100 * choice + index);
  return r.OnTokens(from, tokens, kStart);
}

Transition End(Request& r, const Origin& from, int choice, pb::FinishReason reason, bool last) {
  pb::Finished finished;
  finished.set_choice(choice);
  finished.set_reason(reason);
  finished.set_last(last);
  return r.OnFinished(from, finished, kStart);
}

Transition Commit(Request& r) {
  pb::Committed committed;
  committed.set_lease_id(9);
  return r.OnCommitted(kFromD, committed, kStart);
}

Transition HandedOver(Request& r) {
  pb::Progress progress;
  progress.add_events()->set_name("transfer_done");
  return r.OnProgress(kFromP, progress, kStart);
}

bool Done(const Transition& t) {
  return t.end.has_value() && t.end->ok();
}

TEST(RequestChoicesTest, DemandsRoomForAll) {
  const Demand demand = MakeRequest(3, 20).demand(0);
  EXPECT_EQ(demand.prompt_tokens, 5);
  EXPECT_EQ(demand.answer_tokens, 20);
  EXPECT_EQ(demand.choices, 3);
}

// Choice 1 is over with its first token. What P says and what D says interleave in any way.
TEST(RequestChoicesTest, SomeEndAtPTheOthersAtDInEveryOrder) {
  using Step = std::function<Transition(Request&)>;
  const std::vector<Step> of_p = {
      [](Request& r) { return Token(r, kFromP, 0, 0); },
      [](Request& r) { return Token(r, kFromP, 1, 0); },
      [](Request& r) { return End(r, kFromP, 1, kStop, false); },
      [](Request& r) { return Token(r, kFromP, 2, 0); },
      [](Request& r) { return HandedOver(r); },
  };
  const std::vector<Step> of_d = {
      [](Request& r) { return Commit(r); },
      [](Request& r) { return Token(r, kFromD, 0, 1); },
      [](Request& r) { return Token(r, kFromD, 2, 1); },
      [](Request& r) { return End(r, kFromD, 2, kStop, false); },
      [](Request& r) { return Token(r, kFromD, 0, 2); },
      [](Request& r) { return End(r, kFromD, 0, kLength, true); },
  };
  std::vector<bool> order(of_p.size(), false);
  order.resize(of_p.size() + of_d.size(), true);
  int orders = 0;
  do {
    Request request = Split(3);
    std::map<int, int> next;
    std::map<uint64_t, int> let_go;
    std::optional<absl::Status> end;
    size_t p = 0, d = 0;
    for (const bool is_d : order) {
      const Transition t = is_d ? of_d[d++](request) : of_p[p++](request);
      ASSERT_TRUE(!t.ignored || end.has_value()) << "nothing is superfluous before the end";
      for (const pb::Tokens& tokens : t.tokens) {
        ASSERT_EQ(tokens.first_index(), next[tokens.choice()]);
        for (int id : tokens.token_ids()) ASSERT_EQ(id, 100 * tokens.choice() + next[tokens.choice()]++);
      }
      for (const auto& hold : t.freed) ++let_go[hold.incarnation];
      for (const auto& hold : t.leaving) ++let_go[hold.incarnation];
      EXPECT_TRUE(t.to_workers.empty()) << "nobody is cancelled";
      if (!t.end.has_value()) continue;
      ASSERT_FALSE(end.has_value());
      end = t.end;
    }
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->ok()) << *end;
    EXPECT_EQ(next, (std::map<int, int>{{0, 3}, {1, 1}, {2, 2}}));
    EXPECT_EQ(let_go, (std::map<uint64_t, int>{{kP, 1}, {kD, 1}}));
    EXPECT_THAT(request.End(*end, kStart).reasons, ElementsAre(kLength, kStop, kStop));
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(orders, 462);
}

TEST(RequestChoicesTest, AllOverWithTheirFirstTokenNeedNoD) {
  Request request = Split(2);
  Token(request, kFromP, 0, 0);
  EXPECT_FALSE(Done(End(request, kFromP, 0, kStop, false)));
  Token(request, kFromP, 1, 0);
  const Transition end = End(request, kFromP, 1, kStop, true);
  EXPECT_TRUE(Done(end));
  ASSERT_EQ(end.to_workers.size(), 1u);
  EXPECT_TRUE(end.to_workers[0].message.has_release());
  ASSERT_EQ(end.freed.size(), 2u);
  EXPECT_EQ(end.freed[0].incarnation, kP);
  EXPECT_EQ(end.freed[1].incarnation, kD);
}

TEST(RequestChoicesTest, AChoiceThatNobodyEndedIsAnError) {
  Request at_d = Split(2);
  Token(at_d, kFromP, 0, 0);
  Token(at_d, kFromP, 1, 0);
  Commit(at_d);
  HandedOver(at_d);  // P has nothing more to say
  Token(at_d, kFromD, 0, 1);
  const Transition end = End(at_d, kFromD, 0, kStop, true);
  ASSERT_TRUE(end.end.has_value());
  EXPECT_THAT(std::string(end.end->message()), HasSubstr("a choice is missing"));

  Request at_p = Split(2);
  Token(at_p, kFromP, 0, 0);
  Token(at_p, kFromP, 1, 0);
  Commit(at_p);
  Token(at_p, kFromD, 0, 1);
  EXPECT_FALSE(End(at_p, kFromD, 0, kStop, true).end.has_value()) << "P may still say it";
  const Transition over = HandedOver(at_p);
  ASSERT_TRUE(over.end.has_value());
  EXPECT_THAT(std::string(over.end->message()), HasSubstr("a choice is missing"));

  Request both = Both(2);
  Token(both, kFromD, 0, 0);
  EXPECT_EQ(End(both, kFromD, 0, kStop, true).end->code(), absl::StatusCode::kInternal);
}

TEST(RequestChoicesTest, PEndsOnlyWhatItsFirstTokenEnded) {
  Request request = Split(2);
  Token(request, kFromP, 0, 0);
  Token(request, kFromP, 1, 0);
  Commit(request);
  Token(request, kFromD, 1, 1);
  EXPECT_EQ(End(request, kFromP, 1, kStop, false).end->code(), absl::StatusCode::kInternal);
}

TEST(RequestChoicesTest, ThePsLossCountsWhileItsWordIsMissing) {
  Request request = Split(2);
  Token(request, kFromP, 0, 0);
  Token(request, kFromP, 1, 0);
  Commit(request);
  EXPECT_FALSE(request.OnWorkerLost(kP, "it died", kStart).end.has_value()) << "D has the KV";
  Token(request, kFromD, 0, 1);
  const Transition end = End(request, kFromD, 0, kStop, true);
  ASSERT_TRUE(end.end.has_value());
  EXPECT_EQ(end.end->code(), absl::StatusCode::kUnavailable) << "the end of choice 1 is lost with P";
}

TEST(RequestChoicesTest, AStopStringEndsItsChoiceOnly) {
  Request request = Both(2);
  EXPECT_TRUE(request.OnStopped(0, kStart).ignored) << "nothing came that could have been it";
  Token(request, kFromD, 0, 0);
  Token(request, kFromD, 1, 0);
  EXPECT_FALSE(request.OnStopped(0, kStart).end.has_value());
  EXPECT_TRUE(request.OnStopped(7, kStart).ignored);
  EXPECT_TRUE(Token(request, kFromD, 0, 1).ignored) << "the worker goes on with it";
  EXPECT_TRUE(Token(request, kFromD, 0, 2).ignored);
  EXPECT_EQ(Token(request, kFromD, 1, 1).tokens.size(), 1u);
  const Transition end = End(request, kFromD, 1, kLength, false);
  EXPECT_TRUE(Done(end)) << "nobody waits for what was stopped";
  EXPECT_EQ(end.to_workers.at(0).message.has_cancel(), true);
  EXPECT_THAT(request.End(*end.end, kStart).reasons, ElementsAre(kStop, kLength));
}

TEST(RequestChoicesTest, StopStringsInEachOfThem) {
  Request request = Split(2);
  Token(request, kFromP, 0, 0);
  EXPECT_FALSE(Done(request.OnStopped(0, kStart))) << "the other has not begun";
  Token(request, kFromP, 1, 0);
  const Transition end = request.OnStopped(1, kStart);
  EXPECT_TRUE(Done(end));
  EXPECT_EQ(end.to_workers.size(), 2u) << "both are cancelled";
  EXPECT_TRUE(request.OnStopped(1, kStart).ignored);
}

TEST(RequestChoicesTest, ALossCountsTheTokensOfAll) {
  Request request = Both(2);
  for (int choice : {0, 1}) Token(request, kFromD, choice, 0);
  Token(request, kFromD, 1, 1);
  EXPECT_THAT(std::string(request.OnWorkerLost(kD, "it died", kStart).end->message()), HasSubstr("after 3 tokens"));
}

}  // namespace
}  // namespace sluice::router
