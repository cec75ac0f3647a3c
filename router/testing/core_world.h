// The world around a RouterCore in one thread: remembers what the core said, checks what must always hold, and speaks
// for workers and clients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/core.h"

namespace sluice::router {

inline const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

inline pb::WorkerInfo Info(uint64_t incarnation, int port, int64_t blocks = 100, pb::Role role = pb::ROLE_BOTH) {
  pb::WorkerInfo info;
  info.set_role(role);
  info.set_incarnation(incarnation);
  info.mutable_fingerprint()->set_model_hash("abcdef");
  info.mutable_fingerprint()->set_block_size(16);
  info.mutable_fingerprint()->set_protocol_version(kProtocolVersion);
  info.mutable_work()->set_host("127.0.0.1");
  info.mutable_work()->set_port(port);
  info.set_blocks_total(blocks);
  info.set_max_running(4);
  info.set_max_step_tokens(64);
  info.set_context_length(2048);
  return info;
}

// A request whose worker fails fails.
inline CoreOptions NoMoves() {
  CoreOptions options;
  options.request.moves.in_a_row = 0;
  return options;
}

class World {
 public:
  explicit World(CoreOptions options = {})
      : core_([&] {
          options.registry.model_hash = "abcdef";
          options.registry.model = "tiny";
          return options;
        }()) {}

  std::vector<Action> Do(Event event) {
    std::vector<Action> actions = core_.Handle(std::move(event), now_);
    for (const Action& action : actions) Record(action);
    return actions;
  }

  void Pass(absl::Duration time) {
    const absl::Time until = now_ + time;
    while (core_.NextDeadline() <= until) {
      now_ = std::max(now_, core_.NextDeadline());
      Do(Tick{});
    }
    now_ = until;
    Do(Tick{});
  }

  void Join(uint64_t incarnation, uint64_t session, int64_t blocks = 100, pb::Role role = pb::ROLE_BOTH) {
    Do(WorkerAnnounced{session, Info(incarnation, 7000 + int(incarnation), blocks, role)});
    const uint64_t link = links_.at(incarnation);
    pb::WorkerHello hello;
    hello.set_worker_incarnation(incarnation);
    Do(LinkUp{link, hello});
  }

  // The prefill worker says of its pair with a decode worker what `status` says.
  void ReportPairs(uint64_t session, const std::vector<pb::PairStatus>& pairs, int64_t free = 100) {
    pb::WorkerReport report;
    report.set_sequence(++report_sequence_);
    report.set_blocks_free(free);
    for (const pb::PairStatus& pair : pairs) *report.add_pairs() = pair;
    Do(WorkerHeartbeat{session, report});
  }
  static pb::PairStatus Up(uint64_t decode) {
    pb::PairStatus pair;
    pair.set_decode_incarnation(decode);
    pair.set_up(true);
    return pair;
  }
  static pb::PairStatus Misfit(uint64_t decode) {
    pb::PairStatus pair;
    pair.set_decode_incarnation(decode);
    pair.mutable_refused()->set_reason(pb::INCOMPATIBLE);
    pair.mutable_refused()->set_message("another kv_dtype");
    return pair;
  }

  void Submit(uint64_t call, int max_tokens = 8, absl::Time deadline = absl::InfiniteFuture(), int priority = 0,
              int prompt = 5) {
    router::Submit submit{
        .call = call, .request_id = absl::StrCat("r", call), .sequence = {}, .received = now_, .deadline = deadline};
    for (int i = 0; i < prompt; ++i) submit.sequence.add_tokens(i);
    submit.sequence.set_num_prompt_tokens(prompt);
    submit.sequence.set_priority(priority);
    submit.sequence.mutable_sampling()->set_max_tokens(max_tokens);
    submit.sequence.mutable_sampling()->set_n(1);
    Do(std::move(submit));
  }

  // What the worker with `incarnation` says about a call's newest attempt.
  pb::WorkerEvent About(uint64_t call) {
    pb::WorkerEvent event;
    *event.mutable_key() = keys_.at(call);
    return event;
  }
  void Say(uint64_t incarnation, const pb::WorkerEvent& event) {
    pb::WorkerMessage message;
    *message.add_events() = event;
    Do(WorkerBatch{links_.at(incarnation), message});
  }
  void Grant(uint64_t incarnation, uint64_t call) {
    pb::WorkerEvent event = About(call);
    event.mutable_lease_granted()->set_lease_id(call + 1000);
    event.mutable_lease_granted()->set_prefix_tokens(0);
    event.mutable_lease_granted()->set_lease_ms(9000);
    Say(incarnation, event);
  }
  void SendTokens(uint64_t incarnation, uint64_t call, int first, int count) {
    pb::WorkerEvent event = About(call);
    event.mutable_tokens()->set_first_index(first);
    for (int i = 0; i < count; ++i) event.mutable_tokens()->add_token_ids(first + i);
    Say(incarnation, event);
  }
  void Finish(uint64_t incarnation, uint64_t call) {
    pb::WorkerEvent event = About(call);
    event.mutable_finished()->set_last(true);
    event.mutable_finished()->set_reason(pb::FINISH_REASON_LENGTH);
    Say(incarnation, event);
  }
  void Commit(uint64_t incarnation, uint64_t call) {
    pb::WorkerEvent event = About(call);
    event.mutable_committed()->set_lease_id(call + 1000);
    event.mutable_committed()->set_bytes(4096);
    Say(incarnation, event);
  }
  void Progress(uint64_t incarnation, uint64_t call, const std::string& name, int64_t amount = 0) {
    pb::WorkerEvent event = About(call);
    pb::TimelineEvent& entry = *event.mutable_progress()->add_events();
    entry.set_name(name);
    entry.set_amount(amount);
    Say(incarnation, event);
  }
  void Refuse(uint64_t incarnation, uint64_t call, pb::ErrorReason reason, int64_t free = 0) {
    pb::WorkerEvent event = About(call);
    event.mutable_refused()->mutable_error()->set_reason(reason);
    event.mutable_refused()->set_blocks_free(free);
    Say(incarnation, event);
  }
  void Fail(uint64_t incarnation, uint64_t call, absl::StatusCode code,
            pb::ErrorReason reason = pb::ERROR_REASON_UNSPECIFIED) {
    pb::WorkerEvent event = About(call);
    event.mutable_failed()->mutable_error()->set_reason(reason);
    event.mutable_failed()->mutable_error()->set_code(int(code));
    Say(incarnation, event);
  }
  void Heartbeat(uint64_t session, int64_t free) {
    pb::WorkerReport report;
    report.set_sequence(++report_sequence_);
    report.set_blocks_free(free);
    Do(WorkerHeartbeat{session, report});
  }

  bool Ended(uint64_t call) const { return ends_.contains(call); }
  absl::Status EndOf(uint64_t call) const { return ends_.at(call).status; }
  bool Reserved(uint64_t call) const { return keys_.contains(call); }
  uint64_t WorkerOf(uint64_t call) const { return placed_.at(call); }

  void Record(const Action& action) {
    if (const auto* end = std::get_if<ClientEnd>(&action)) {
      EXPECT_FALSE(ends_.contains(end->call)) << "call " << end->call << " ended twice";
      ends_[end->call] = *end;
    } else if (const auto* tokens = std::get_if<ClientTokens>(&action)) {
      EXPECT_FALSE(ends_.contains(tokens->call)) << "tokens after the end";
      EXPECT_EQ(tokens->tokens.first_index(), tokens_[tokens->call]);
      for (int i = 0; i < tokens->tokens.token_ids_size(); ++i) {
        EXPECT_EQ(tokens->tokens.token_ids(i), tokens->tokens.first_index() + i) << "another token than was sent";
      }
      tokens_[tokens->call] += tokens->tokens.token_ids_size();
    } else if (const auto* connect = std::get_if<ConnectWorker>(&action)) {
      links_[connect->incarnation] = connect->link;
      owners_[connect->link] = connect->incarnation;
    } else if (const auto* disconnect = std::get_if<DisconnectWorker>(&action)) {
      disconnected_.push_back(disconnect->link);
    } else if (const auto* send = std::get_if<SendToWorker>(&action)) {
      sent_.push_back(*send);
      if (send->message.has_reserve()) {
        const pb::RequestKey& key = send->message.reserve().key();
        const uint64_t call = std::stoull(key.request_id().substr(key.request_id().find('/') + 1));
        keys_[call] = key;
        placed_[call] = owners_.at(send->link);
      } else if (send->message.has_prefill()) {
        const pb::Prefill& prefill = send->message.prefill();
        const uint64_t call = std::stoull(prefill.key().request_id().substr(prefill.key().request_id().find('/') + 1));
        keys_[call] = prefill.key();
        prefills_[call] = prefill;
        prefilled_[call] = owners_.at(send->link);
      }
    } else if (const auto* pool = std::get_if<PoolChanged>(&action)) {
      pool_ = *pool;
    } else if (const auto* closed = std::get_if<CloseAnnounce>(&action)) {
      closed_[closed->session] = closed->status;
    } else if (const auto* answer = std::get_if<AnswerAnnounce>(&action)) {
      answers_[answer->session].push_back(answer->reply);
    } else if (const auto* note = std::get_if<Note>(&action)) {
      notes_.push_back(note->text);
    }
  }

  // Messages of one kind to one worker.
  template <typename Has>
  int Sent(uint64_t incarnation, Has has) const {
    return int(std::count_if(sent_.begin(), sent_.end(), [&](const SendToWorker& s) {
      return owners_.at(s.link) == incarnation && (s.message.*has)();
    }));
  }
  int CancelsTo(uint64_t incarnation) const { return Sent(incarnation, &pb::RouterMessage::has_cancel); }
  int ReleasesTo(uint64_t incarnation) const { return Sent(incarnation, &pb::RouterMessage::has_release); }
  int ReservesTo(uint64_t incarnation) const { return Sent(incarnation, &pb::RouterMessage::has_reserve); }
  int PrefillsTo(uint64_t incarnation) const { return Sent(incarnation, &pb::RouterMessage::has_prefill); }

  int Cancels() const {
    return int(std::count_if(sent_.begin(), sent_.end(), [](const auto& s) { return s.message.has_cancel(); }));
  }

  absl::Time now_ = kStart;
  RouterCore core_;
  std::map<uint64_t, ClientEnd> ends_;
  std::map<uint64_t, int> tokens_;
  std::map<uint64_t, uint64_t> links_;   // incarnation -> newest link
  std::map<uint64_t, uint64_t> owners_;  // link -> incarnation
  std::map<uint64_t, pb::RequestKey> keys_;
  std::map<uint64_t, uint64_t> placed_;       // call -> D, or `both`
  std::map<uint64_t, uint64_t> prefilled_;    // call -> P
  std::map<uint64_t, pb::Prefill> prefills_;  // by call
  std::map<uint64_t, std::vector<pb::AnnounceReply>> answers_;
  std::vector<std::string> notes_;
  std::map<uint64_t, absl::Status> closed_;
  std::vector<SendToWorker> sent_;
  std::vector<uint64_t> disconnected_;
  PoolChanged pool_;
  uint64_t report_sequence_ = 0;
};

}  // namespace sluice::router
