// The request machine over a prefill worker P and a decode worker D.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
const Assignment kPair{{kD, "D"}, {kP, "P"}};

// Who never moves: what happens to an attempt is what happens to the request.
const RequestOptions kNoMoves{.moves = {.in_a_row = 0}};

absl::Time At(int ms) {
  return kStart + absl::Milliseconds(ms);
}

Request MakeRequest(int max_tokens = 8) {
  Submit submit{.call = 1, .request_id = "r", .sequence = {}, .received = kStart};
  for (int i = 0; i < 5; ++i) submit.sequence.add_tokens(i);
  submit.sequence.set_num_prompt_tokens(5);
  submit.sequence.mutable_sampling()->set_max_tokens(max_tokens);
  submit.sequence.mutable_sampling()->set_n(1);
  return Request(std::move(submit), "r/1", kNoMoves);
}

pb::Tokens Tokens(int first, std::vector<int> ids) {
  pb::Tokens tokens;
  tokens.set_first_index(first);
  for (int id : ids) {
    tokens.add_token_ids(id);
    tokens.add_logprobs()->mutable_sampled()->set_token_id(id);
  }
  return tokens;
}

pb::LeaseGranted Granted() {
  pb::LeaseGranted granted;
  granted.set_lease_id(9);
  granted.set_lease_ms(3000);
  granted.add_blocks()->set_num_blocks(1);
  return granted;
}

pb::Committed Committed(uint64_t lease = 9) {
  pb::Committed committed;
  committed.set_lease_id(lease);
  committed.set_bytes(1234);
  return committed;
}

pb::Refused Refused(pb::ErrorReason reason) {
  pb::Refused refused;
  refused.mutable_error()->set_reason(reason);
  return refused;
}

pb::Failed Failed(absl::StatusCode code, pb::ErrorReason reason = pb::INTERNAL_ERROR) {
  pb::Failed failed;
  failed.mutable_error()->set_code(int(code));
  failed.mutable_error()->set_reason(reason);
  return failed;
}

pb::Finished Finished(pb::FinishReason reason = pb::FINISH_REASON_LENGTH) {
  pb::Finished finished;
  finished.set_reason(reason);
  finished.set_last(true);
  return finished;
}

pb::Progress Entry(const std::string& name, double at_ms = 0, int64_t amount = 0) {
  pb::Progress progress;
  pb::TimelineEvent& event = *progress.add_events();
  event.set_name(name);
  event.set_at_ms(at_ms);
  event.set_amount(amount);
  return progress;
}

// A transition in words: "ignored", or what it sends, whom it frees, what becomes of the request.
std::string Words(const Transition& t) {
  if (t.ignored) return "ignored";
  std::vector<std::string> words;
  const auto name = [](uint64_t incarnation) { return incarnation == kP ? "P" : "D"; };
  for (const pb::Tokens& tokens : t.tokens) {
    words.push_back(absl::StrCat("tokens ", tokens.first_index(), ":", absl::StrJoin(tokens.token_ids(), ",")));
    EXPECT_EQ(tokens.token_ids_size(), tokens.logprobs_size());
  }
  std::vector<uint64_t> leaving;
  for (const Transition::Hold& hold : t.leaving) leaving.push_back(hold.incarnation);
  for (const ToWorker& out : t.to_workers) {
    const bool cancel = out.message.has_cancel();
    words.push_back(absl::StrCat(cancel                      ? "cancel "
                                 : out.message.has_release() ? "release "
                                 : out.message.has_prefill() ? "prefill "
                                                             : "? ",
                                 name(out.incarnation)));
    if (!cancel) continue;
    EXPECT_EQ(std::erase(leaving, out.incarnation), 1u) << "who is cancelled leaves";
  }
  for (uint64_t incarnation : leaving) words.push_back(absl::StrCat("let ", name(incarnation), " end"));
  for (const Transition::Hold& hold : t.freed) words.push_back(absl::StrCat("free ", name(hold.incarnation)));
  if (!t.requeue.empty()) words.push_back("requeue");
  if (t.end.has_value()) words.push_back(t.end->ok() ? "done" : absl::StatusCodeToString(t.end->code()));
  return absl::StrJoin(words, "; ");
}

// ---- the table ----

const std::vector<std::pair<std::string, std::function<void(Request&)>>> kSituations = {
    {"queued", [](Request&) {}},
    {"reserved", [](Request& r) { r.Dispatch(0, kPair, kStart); }},
    {"prefilling", [](Request& r) { r.OnGranted(kFromD, Granted(), kStart); }},
    {"prefilling, committed",  // D was heard before P
     [](Request& r) { r.OnCommitted(kFromD, Committed(), kStart); }},
    {"prefilling, decoded",
     [](Request& r) {
       r.OnTokens(kFromD, Tokens(1, {11, 12}), kStart);
       r.OnFinished(kFromD, Finished(), kStart);
     }},
};

Request In(const std::string& situation) {
  Request request = MakeRequest();
  for (const auto& [name, enter] : kSituations) {
    enter(request);
    if (name == situation) return request;
  }
  request = In("prefilling");
  request.OnTokens(kFromP, Tokens(0, {10}), kStart);
  if (situation == "handing_off") return request;
  if (situation == "handing_off, P lost") {
    request.OnWorkerLost(kP, "it died", kStart);
    return request;
  }
  if (situation == "handing_off, D let go") {  // P has ended the transfer; why is on its way
    request.OnFailed(kFromD, Failed(absl::StatusCode::kCancelled, pb::CANCELLED_BY_CLIENT), kStart);
    return request;
  }
  request.OnCommitted(kFromD, Committed(), kStart);
  if (situation == "decoding") return request;
  request.OnProgress(kFromP, Entry("transfer_done"), kStart);
  if (situation == "decoding, P over") return request;
  ADD_FAILURE() << situation;
  return request;
}

using Happening = std::function<Transition(Request&)>;

const std::map<std::string, Happening> kHappenings = {
    {"cancel", [](Request& r) { return r.OnEnded(absl::CancelledError("gone"), kStart); }},
    {"deadline", [](Request& r) { return r.OnEnded(absl::DeadlineExceededError("late"), kStart); }},
    {"stop", [](Request& r) { return r.OnEnded(absl::OkStatus(), kStart); }},
    {"P lost", [](Request& r) { return r.OnWorkerLost(kP, "it died", kStart); }},
    {"D lost", [](Request& r) { return r.OnWorkerLost(kD, "it died", kStart); }},
    {"P refuses", [](Request& r) { return r.OnRefused(kFromP, Refused(pb::NO_BLOCKS), kStart); }},
    {"P refuses for ever", [](Request& r) { return r.OnRefused(kFromP, Refused(pb::INVALID_REQUEST), kStart); }},
    {"D refuses", [](Request& r) { return r.OnRefused(kFromD, Refused(pb::NO_BLOCKS), kStart); }},
    {"D refuses for ever", [](Request& r) { return r.OnRefused(kFromD, Refused(pb::INVALID_REQUEST), kStart); }},
    {"P failed", [](Request& r) { return r.OnFailed(kFromP, Failed(absl::StatusCode::kInternal), kStart); }},
    {"D failed",
     [](Request& r) { return r.OnFailed(kFromD, Failed(absl::StatusCode::kDataLoss, pb::CHECKSUM_MISMATCH), kStart); }},
    {"D's lease expired",
     [](Request& r) { return r.OnFailed(kFromD, Failed(absl::StatusCode::kOk, pb::LEASE_EXPIRED), kStart); }},
    {"P cancelled at D",
     [](Request& r) {
       return r.OnFailed(kFromD, Failed(absl::StatusCode::kCancelled, pb::CANCELLED_BY_CLIENT), kStart);
     }},
    {"P finished", [](Request& r) { return r.OnFinished(kFromP, Finished(), kStart); }},
    {"D finished", [](Request& r) { return r.OnFinished(kFromD, Finished(), kStart); }},
    {"token 0", [](Request& r) { return r.OnTokens(kFromP, Tokens(0, {10}), kStart); }},
    {"token 1", [](Request& r) { return r.OnTokens(kFromD, Tokens(1, {11}), kStart); }},
    {"committed", [](Request& r) { return r.OnCommitted(kFromD, Committed(), kStart); }},
    {"handed over", [](Request& r) { return r.OnProgress(kFromP, Entry("transfer_done"), kStart); }},
};

// What is not listed is ignored.
const std::map<std::string, std::map<std::string, std::string>> kTable = {
    {"queued", {{"cancel", "CANCELLED"}, {"deadline", "DEADLINE_EXCEEDED"}, {"stop", "done"}}},
    {"reserved",
     {{"cancel", "cancel D; free P; CANCELLED"},
      {"deadline", "cancel D; free P; DEADLINE_EXCEEDED"},
      {"stop", "cancel D; free P; done"},
      {"P lost", "cancel D; free P; requeue"},
      {"D lost", "free D; free P; UNAVAILABLE"},
      {"D refuses", "free D; free P; requeue"},
      {"D refuses for ever", "free D; free P; INVALID_ARGUMENT"},
      {"D failed", "free D; free P; DATA_LOSS"},
      {"D's lease expired", "free D; free P; UNAVAILABLE"},
      {"P cancelled at D", "free D; free P; INTERNAL"},
      {"D finished", "cancel D; free P; INTERNAL"},
      {"token 1", "cancel D; free P; INTERNAL"},
      {"committed", "cancel D; free P; INTERNAL"}}},
    {"prefilling",
     {{"cancel", "cancel D; cancel P; CANCELLED"},
      {"deadline", "cancel D; cancel P; DEADLINE_EXCEEDED"},
      {"stop", "cancel D; cancel P; done"},
      {"P lost", "cancel D; free P; UNAVAILABLE"},
      {"D lost", "cancel P; free D; UNAVAILABLE"},
      {"P refuses", "release D; free P; free D; requeue"},
      {"P refuses for ever", "cancel D; free P; INVALID_ARGUMENT"},
      {"P failed", "cancel D; free P; INTERNAL"},
      {"D failed", "cancel P; free D; DATA_LOSS"},
      {"D's lease expired", "cancel P; free D; UNAVAILABLE"},
      {"P cancelled at D", "free D"},
      {"P finished", "cancel D; cancel P; INTERNAL"},
      {"D finished", "cancel D; cancel P; INTERNAL"},
      {"token 0", "tokens 0:10"},
      {"token 1", "cancel D; cancel P; INTERNAL"},
      {"committed", ""},
      {"handed over", "cancel D; cancel P; INTERNAL"}}},
    {"prefilling, committed",
     {{"cancel", "cancel D; cancel P; CANCELLED"},
      {"deadline", "cancel D; cancel P; DEADLINE_EXCEEDED"},
      {"stop", "cancel D; cancel P; done"},
      {"P lost", "cancel D; free P; UNAVAILABLE"},
      {"D lost", "cancel P; free D; UNAVAILABLE"},
      {"P failed", "cancel D; free P; INTERNAL"},
      {"D failed", "cancel P; free D; DATA_LOSS"},
      {"D's lease expired", "cancel P; free D; UNAVAILABLE"},
      {"P cancelled at D", "cancel P; free D; INTERNAL"},
      {"P finished", "cancel D; cancel P; INTERNAL"},
      {"D finished", "cancel D; cancel P; INTERNAL"},
      {"token 0", "tokens 0:10"},
      {"token 1", ""},
      {"handed over", "cancel D; cancel P; INTERNAL"}}},
    {"prefilling, decoded",
     {{"cancel", "cancel P; CANCELLED"},
      {"deadline", "cancel P; DEADLINE_EXCEEDED"},
      {"stop", "cancel P; done"},
      {"P lost", "free P; UNAVAILABLE"},
      {"P failed", "free P; INTERNAL"},
      {"P finished", "cancel P; INTERNAL"},
      {"token 0", "tokens 0:10; tokens 1:11,12; let P end; done"},
      {"handed over", "cancel P; INTERNAL"}}},
    {"handing_off",
     {{"cancel", "cancel D; cancel P; CANCELLED"},
      {"deadline", "cancel D; cancel P; DEADLINE_EXCEEDED"},
      {"stop", "cancel D; cancel P; done"},
      {"P lost", "free P"},
      {"D lost", "cancel P; free D; UNAVAILABLE"},
      {"P failed", "cancel D; free P; INTERNAL"},
      {"D failed", "cancel P; free D; DATA_LOSS"},
      {"D's lease expired", "cancel P; free D; UNAVAILABLE"},
      {"P cancelled at D", "free D"},
      {"P finished", "release D; free P; free D; done"},
      {"D finished", "cancel D; cancel P; INTERNAL"},
      {"token 1", "cancel D; cancel P; INTERNAL"},
      {"committed", ""},
      {"handed over", "free P"}}},
    {"handing_off, P lost",
     {{"cancel", "cancel D; CANCELLED"},
      {"deadline", "cancel D; DEADLINE_EXCEEDED"},
      {"stop", "cancel D; done"},
      {"D lost", "free D; UNAVAILABLE"},
      {"D failed", "free D; UNAVAILABLE"},
      {"D's lease expired", "free D; UNAVAILABLE"},
      {"P cancelled at D", "free D; UNAVAILABLE"},
      {"D finished", "cancel D; INTERNAL"},
      {"token 1", "cancel D; INTERNAL"},
      {"committed", ""}}},
    {"handing_off, D let go",
     {{"cancel", "cancel P; CANCELLED"},
      {"deadline", "cancel P; DEADLINE_EXCEEDED"},
      {"stop", "cancel P; done"},
      {"P lost", "free P; UNAVAILABLE"},
      {"P failed", "free P; INTERNAL"},
      {"P finished", "free P; done"},
      {"handed over", "cancel P; INTERNAL"}}},
    {"decoding",
     {{"cancel", "cancel D; cancel P; CANCELLED"},
      {"deadline", "cancel D; cancel P; DEADLINE_EXCEEDED"},
      {"stop", "cancel D; cancel P; done"},
      {"P lost", "free P"},
      {"D lost", "cancel P; free D; UNAVAILABLE"},
      {"P failed", "free P"},
      {"D failed", "cancel P; free D; DATA_LOSS"},
      {"D's lease expired", "cancel P; free D; UNAVAILABLE"},
      {"P cancelled at D", "cancel P; free D; INTERNAL"},
      {"P finished", "cancel D; cancel P; INTERNAL"},
      {"D finished", "let P end; free D; done"},
      {"token 1", "tokens 1:11"},
      {"handed over", "free P"}}},
    {"decoding, P over",
     {{"cancel", "cancel D; CANCELLED"},
      {"deadline", "cancel D; DEADLINE_EXCEEDED"},
      {"stop", "cancel D; done"},
      {"D lost", "free D; UNAVAILABLE"},
      {"D failed", "free D; DATA_LOSS"},
      {"D's lease expired", "free D; UNAVAILABLE"},
      {"P cancelled at D", "free D; INTERNAL"},
      {"D finished", "free D; done"},
      {"token 1", "tokens 1:11"}}},
};

TEST(RequestSplitTest, EverySituationTimesEverythingThatMayHappen) {
  for (const auto& [situation, expected] : kTable) {
    for (const auto& [happening, apply] : kHappenings) {
      SCOPED_TRACE(absl::StrCat(situation, " x ", happening));
      Request request = In(situation);
      const Transition transition = apply(request);
      const auto row = expected.find(happening);
      EXPECT_EQ(Words(transition), row == expected.end() ? "ignored" : row->second);
      EXPECT_EQ(transition.end.has_value(), request.over());
      if (!request.over()) continue;
      for (const auto& [later, again] : kHappenings) EXPECT_TRUE(again(request).ignored) << later << " after the end";
      EXPECT_FALSE(request.Involves(kP));
      EXPECT_FALSE(request.Involves(kD));
    }
  }
}

TEST(RequestSplitTest, WhatHappensTwiceIsNothingNew) {
  for (const auto& [situation, expected] : kTable) {
    for (const auto& [happening, apply] : kHappenings) {
      SCOPED_TRACE(absl::StrCat(situation, " x ", happening));
      Request request = In(situation);
      apply(request);
      if (request.over() || request.state() == RequestState::kQueued) continue;
      EXPECT_TRUE(apply(request).ignored);
    }
  }
}

// ---- the good paths ----

TEST(RequestSplitTest, LifeOfARequest) {
  Request request = MakeRequest();
  const ToWorker reserve = request.Dispatch(0, kPair, At(5));
  EXPECT_EQ(reserve.incarnation, kD);
  EXPECT_FALSE(reserve.message.reserve().compute_prompt());
  EXPECT_EQ(reserve.message.reserve().prefill_incarnation(), kP);
  EXPECT_EQ(request.state(), RequestState::kReserved);

  pb::LeaseGranted granted = Granted();
  granted.set_prefix_tokens(3);
  const Transition reserved = request.OnGranted(kFromD, granted, At(6));
  ASSERT_EQ(Words(reserved), "prefill P");
  const pb::Prefill& prefill = reserved.to_workers[0].message.prefill();
  EXPECT_EQ(prefill.lease().decode_incarnation(), kD);
  EXPECT_EQ(prefill.lease().lease_id(), 9u);
  EXPECT_EQ(prefill.decode_prefix_tokens(), 3);
  EXPECT_EQ(prefill.decode_blocks_size(), 1);
  EXPECT_EQ(prefill.sequence().tokens_size(), 5);
  EXPECT_EQ(request.state(), RequestState::kPrefilling);

  request.OnProgress(kFromP, Entry("prefill_chunk", 10, 5), At(20));
  EXPECT_EQ(Words(request.OnTokens(kFromP, Tokens(0, {10}), At(21))), "tokens 0:10");
  EXPECT_EQ(request.state(), RequestState::kHandingOff);
  request.OnProgress(kFromP, Entry("first_token", 14), At(21));
  request.OnCommitted(kFromD, Committed(), At(30));
  EXPECT_EQ(request.state(), RequestState::kDecoding);
  EXPECT_THAT(request.LeasesAt(kD), ElementsAre(9u));
  request.OnProgress(kFromP, Entry("piece_acked", 15, 1234), At(31));
  EXPECT_EQ(Words(request.OnProgress(kFromP, Entry("transfer_done", 22, 700), At(31))), "free P");
  request.OnProgress(kFromD, Entry("decoding", 34), At(40));
  EXPECT_EQ(Words(request.OnTokens(kFromD, Tokens(1, {11, 12}), At(40))), "tokens 1:11,12");
  const Transition end = request.OnFinished(kFromD, Finished(), At(41));
  EXPECT_EQ(Words(end), "free D; done");

  std::vector<std::string> timeline;
  for (const auto& e : request.End(*end.end, At(41)).timeline) {
    timeline.push_back(
        absl::StrCat(e.name(), "@", e.at_ms(), e.worker().empty() ? "" : " ", e.worker(), " ", e.amount()));
  }
  EXPECT_THAT(timeline, ElementsAre("queued@0 0", "reserved@6 D 0", "prefilling@6 P 0", "prefill_chunk@16 P 5",
                                    "first_token@21 P 0", "piece_acked@21 P 1234", "transfer_done@28 P 700",
                                    "committed@30 D 1234", "decoding@39 D 0", "done@41 D 0"));
}

TEST(RequestSplitTest, OneTokenNeedsNoDecodeWorker) {
  Request request = MakeRequest(1);
  const ToWorker out = request.Dispatch(0, {{}, {kP, "P"}}, kStart);
  EXPECT_EQ(out.incarnation, kP);
  ASSERT_TRUE(out.message.has_prefill());
  EXPECT_FALSE(out.message.prefill().has_lease());
  EXPECT_EQ(Words(request.OnTokens(kFromP, Tokens(0, {10}), kStart)), "tokens 0:10");
  EXPECT_EQ(Words(request.OnFinished(kFromP, Finished(), kStart)), "free P; done");
  EXPECT_EQ(request.state(), RequestState::kDone);
}

TEST(RequestSplitTest, OneTokenTimesEverythingThatMayHappen) {
  const std::map<std::string, std::string> expected = {
      {"cancel", "cancel P; CANCELLED"}, {"deadline", "cancel P; DEADLINE_EXCEEDED"},
      {"stop", "cancel P; done"},        {"P lost", "free P; UNAVAILABLE"},
      {"P refuses", "free P; requeue"},  {"P refuses for ever", "free P; INVALID_ARGUMENT"},
      {"P failed", "free P; INTERNAL"},  {"P finished", "cancel P; INTERNAL"},
      {"token 0", "tokens 0:10"},        {"handed over", "cancel P; INTERNAL"},
  };
  for (const auto& [happening, apply] : kHappenings) {
    Request request = MakeRequest(1);
    request.Dispatch(0, {{}, {kP, "P"}}, kStart);
    const auto row = expected.find(happening);
    EXPECT_EQ(Words(apply(request)), row == expected.end() ? "ignored" : row->second) << happening;
  }
}

TEST(RequestSplitTest, TokensOfDWaitForTokenZero) {
  Request request = In("prefilling, committed");
  EXPECT_EQ(Words(request.OnTokens(kFromD, Tokens(1, {11}), kStart)), "");
  EXPECT_EQ(Words(request.OnTokens(kFromD, Tokens(1, {11, 12}), kStart)), "") << "one of them again";
  EXPECT_EQ(Words(request.OnTokens(kFromD, Tokens(2, {12}), kStart)), "ignored");
  EXPECT_EQ(Words(request.OnTokens(kFromP, Tokens(0, {10}), kStart)), "tokens 0:10; tokens 1:11,12");
  EXPECT_EQ(request.state(), RequestState::kDecoding);
  EXPECT_EQ(Words(request.OnTokens(kFromD, Tokens(3, {13}), kStart)), "tokens 3:13");
}

TEST(RequestSplitTest, AHoleInWhatWaitsIsAnError) {
  Request request = In("prefilling, committed");
  request.OnTokens(kFromD, Tokens(1, {11}), kStart);
  const Transition gap = request.OnTokens(kFromD, Tokens(3, {13}), kStart);
  EXPECT_EQ(Words(gap), "cancel D; cancel P; INTERNAL");
  EXPECT_THAT(std::string(gap.end->message()), HasSubstr("worker D: token 3 came, token 2 is missing"));
}

TEST(RequestSplitTest, PGivesOneTokenOnly) {
  Request more = In("prefilling");
  EXPECT_EQ(Words(more.OnTokens(kFromP, Tokens(0, {10, 11}), kStart)), "cancel D; cancel P; INTERNAL");
  Request later = In("handing_off");
  EXPECT_EQ(Words(later.OnTokens(kFromP, Tokens(1, {11}), kStart)), "cancel D; cancel P; INTERNAL");
}

TEST(RequestSplitTest, StaleIsIgnored) {
  for (const Origin& from : {Origin{kP, 2}, Origin{kD, 2}, Origin{99, 1}}) {
    Request request = In("handing_off");
    EXPECT_TRUE(request.OnFailed(from, Failed(absl::StatusCode::kInternal), kStart).ignored);
    EXPECT_TRUE(request.OnTokens(from, Tokens(1, {11}), kStart).ignored);
    EXPECT_TRUE(request.OnCommitted(from, Committed(), kStart).ignored);
    EXPECT_TRUE(request.OnProgress(from, Entry("transfer_done"), kStart).ignored);
    EXPECT_TRUE(request.OnFinished(from, Finished(), kStart).ignored);
  }
  Request other_lease = In("handing_off");
  EXPECT_EQ(Words(other_lease.OnCommitted(kFromD, Committed(8), kStart)), "cancel D; cancel P; INTERNAL");
}

TEST(RequestSplitTest, AnotherAttemptStartsFromTheBeginning) {
  Request request = In("prefilling");
  EXPECT_EQ(request.OnRefused(kFromP, Refused(pb::NEVER_FITS), kStart).requeue.size(), 1u);
  EXPECT_TRUE(request.RefusedForEver(kP));
  EXPECT_FALSE(request.RefusedForEver(kD));
  EXPECT_EQ(request.Dispatch(0, {{kD, "D"}, {51, "P2"}}, kStart).message.reserve().key().attempt(), 2);
  EXPECT_THAT(request.LeasesAt(kD), ElementsAre());
  EXPECT_TRUE(request.OnGranted(kFromD, Granted(), kStart).ignored) << "of the first attempt";
  EXPECT_EQ(request.OnGranted({kD, 2}, Granted(), kStart).to_workers.at(0).incarnation, 51u);
}

TEST(RequestSplitTest, ALossNamesTheStateAndTheCause) {
  Request request = In("handing_off, P lost");
  const Transition end = request.OnFailed(kFromD, Failed(absl::StatusCode::kUnavailable, pb::TRANSFER_FAILED), kStart);
  EXPECT_EQ(end.end->message(), "the worker was lost while the request was handing_off after 1 tokens: it died");
}

TEST(RequestSplitTest, ImpossiblePrefixHitsAreAnError) {
  for (int prefix : {-1, 5}) {
    Request request = In("reserved");
    pb::LeaseGranted granted = Granted();
    granted.set_prefix_tokens(prefix);
    EXPECT_EQ(Words(request.OnGranted(kFromD, granted, kStart)), "cancel D; free P; INTERNAL");
  }
}

}  // namespace
}  // namespace sluice::router
