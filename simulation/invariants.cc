#include "simulation/invariants.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/names.h"

namespace sluice::simulation {
namespace {

int64_t BlocksOf(int64_t tokens, int size) {
  return (tokens + size - 1) / size;
}

}  // namespace

std::string Invariants::Name(const Worker& worker) const {
  return absl::StrCat(RoleName(worker.info.role()), " ", worker.info.work().host());
}

// ---- what the core is about to hear ----

void Invariants::Before(const router::Event& event) {
  const absl::Time now = cluster_.now();
  if (const auto* submit = std::get_if<router::Submit>(&event)) {
    waiting_.insert(absl::StrCat(submit->request_id, "/", submit->call));
  } else if (const auto* announced = std::get_if<router::WorkerAnnounced>(&event)) {
    const uint64_t incarnation = announced->info.incarnation();
    for (auto& [other, worker] : workers_) {
      if (other == incarnation || worker.info.work().port() != announced->info.work().port()) continue;
      worker.gone = true;
      Drop(other);
    }
    Worker& worker = workers_[incarnation];
    // Who was silent for a lease and is back. After two, nobody remembers him.
    const bool drained = worker.drained && now < worker.last_heard + 2 * options_.registry.lease;
    if (worker.gone) worker = Worker();
    worker.drained = drained;
    worker.info = announced->info;
    worker.session = announced->session;
    worker.last_heard = now;
    sessions_[announced->session] = incarnation;
  } else if (const auto* heartbeat = std::get_if<router::WorkerHeartbeat>(&event)) {
    const auto it = sessions_.find(heartbeat->session);
    if (it == sessions_.end() || workers_[it->second].session != heartbeat->session) return;
    workers_[it->second].last_heard = now;
    Heard(workers_[it->second], heartbeat->report, false);
  } else if (const auto* leaving = std::get_if<router::WorkerLeaving>(&event)) {
    const auto it = sessions_.find(leaving->session);
    if (it == sessions_.end() || workers_[it->second].session != leaving->session) return;
    workers_[it->second].gone = true;
    Drop(it->second);
  } else if (const auto* lost = std::get_if<router::AnnounceLost>(&event)) {
    const auto it = sessions_.find(lost->session);
    if (it == sessions_.end()) return;
    if (workers_[it->second].session == lost->session) workers_[it->second].session = 0;
    sessions_.erase(it);
  } else if (const auto* up = std::get_if<router::LinkUp>(&event)) {
    const auto it = links_.find(up->link);
    if (it != links_.end() && up->hello.worker_incarnation() == it->second) workers_[it->second].linked = true;
  } else if (const auto* down = std::get_if<router::LinkDown>(&event)) {
    const auto it = links_.find(down->link);
    if (it == links_.end()) return;
    if (workers_[it->second].link == down->link) {
      workers_[it->second].linked = false;
      workers_[it->second].link = 0;
      Drop(it->second);
    }
    links_.erase(it);
  } else if (const auto* batch = std::get_if<router::WorkerBatch>(&event)) {
    const auto it = links_.find(batch->link);
    if (it == links_.end() || workers_[it->second].link != batch->link || !workers_[it->second].linked) return;
    Worker& worker = workers_[it->second];
    for (const pb::WorkerEvent& e : batch->message.events()) OnWorkerEvent(worker, e);
    Heard(worker, batch->message.report(), true);
  }
}

void Invariants::Heard(Worker& worker, const pb::WorkerReport& report, bool from_stream) {
  if (report.sequence() <= worker.report.sequence()) return;
  worker.report = report;
  worker.from_stream = from_stream;
}

void Invariants::OnWorkerEvent(Worker& worker, const pb::WorkerEvent& event) {
  const uint64_t incarnation = worker.info.incarnation();
  const Key key{event.key().request_id(), event.key().attempt()};
  if (const auto newest = newest_.find(key.first); newest != newest_.end() && newest->second != key.second) {
    ++stale_events_;
  }
  const auto hold = worker.holds.find(key);
  if (hold == worker.holds.end()) return;
  Hold& held = hold->second;
  // Of one that it had let go before, the core does not know how long its lease is.
  if (event.has_lease_granted() && held.loose == absl::InfiniteFuture())
    held.lease = absl::Milliseconds(event.lease_granted().lease_ms());
  if (event.has_tokens()) {
    held.has_first = true;
    held.backlog = 0;
    if (worker.info.role() == pb::ROLE_DECODE) {
      for (uint64_t other : who_[key]) {
        const Worker& w = workers_[other];
        const auto its = w.holds.find(key);
        if (other != incarnation && its != w.holds.end() && !its->second.has_first) ++early_events_;
      }
    }
  }
  bool handed_over = false;
  for (const pb::TimelineEvent& entry : event.progress().events()) {
    if (entry.name() == "transfer_done") handed_over = true;
    if (entry.name() == "prefill_chunk") held.backlog = std::max<int64_t>(0, held.prompt - entry.amount());
  }
  const bool last = event.has_finished() && event.finished().last();
  if (!event.has_refused() && !event.has_failed() && !last && !handed_over) return;
  if (event.has_refused() || event.has_failed()) DropPromise(key, incarnation);
  Loosen(key, incarnation);
  worker.holds.erase(key);
  who_[key].erase(incarnation);
}

void Invariants::Drop(uint64_t incarnation) {
  for (const auto& [key, hold] : std::exchange(workers_[incarnation].holds, {})) {
    who_[key].erase(incarnation);
    DropPromise(key, incarnation);
  }
}

void Invariants::DropPromise(const Key& key, uint64_t but) {
  const std::set<uint64_t> all = who_[key];
  for (uint64_t other : all) {
    const auto its = workers_[other].holds.find(key);
    if (other == but || its == workers_[other].holds.end() || !its->second.promised) continue;
    workers_[other].holds.erase(its);
    who_[key].erase(other);
  }
}

void Invariants::Loosen(const Key& key, uint64_t but) {
  for (uint64_t other : who_[key]) {
    const auto its = workers_[other].holds.find(key);
    if (other != but && its != workers_[other].holds.end())
      its->second.loose = std::min(its->second.loose, cluster_.now());
  }
}

// ---- what the core says ----

void Invariants::Saw(const router::Action& action) {
  if (const auto* connect = std::get_if<router::ConnectWorker>(&action)) {
    links_[connect->link] = connect->incarnation;
    workers_[connect->incarnation].link = connect->link;
    workers_[connect->incarnation].linked = false;
  } else if (const auto* disconnect = std::get_if<router::DisconnectWorker>(&action)) {
    const auto it = links_.find(disconnect->link);
    if (it == links_.end() || workers_[it->second].link != disconnect->link) return;
    workers_[it->second].link = 0;
    workers_[it->second].linked = false;
    Drop(it->second);
  } else if (const auto* close = std::get_if<router::CloseAnnounce>(&action)) {
    const auto it = sessions_.find(close->session);
    if (it == sessions_.end() || workers_[it->second].session != close->session) return;
    workers_[it->second].gone = true;  // a worker that is not GONE keeps its stream
    Drop(it->second);
  } else if (const auto* answer = std::get_if<router::AnswerAnnounce>(&action)) {
    const auto it = sessions_.find(answer->session);
    if (it != sessions_.end() && answer->reply.drain()) workers_[it->second].drained = true;
  } else if (const auto* send = std::get_if<router::SendToWorker>(&action)) {
    const auto it = links_.find(send->link);
    const bool known = it != links_.end() && workers_[it->second].link == send->link;
    if (!known || (!workers_[it->second].linked && !send->message.has_drain())) {  // that one waits for the stream
      return violate_(absl::StrCat("a message over link ", send->link, ", which is not open"));
    }
    OnSend(it->second, workers_[it->second], send->message);
  } else if (const auto* end = std::get_if<router::ClientEnd>(&action)) {
    const std::string suffix = absl::StrCat("r", end->call, "/", end->call);
    waiting_.erase(suffix);
    newest_.erase(suffix);
    for (auto it = who_.lower_bound({suffix, 0}); it != who_.end() && it->first.first == suffix;) {
      const Key key = it->first;
      DropPromise(key, 0);
      Loosen(key, 0);
      it = it->second.empty() ? who_.erase(it) : std::next(it);
    }
  }
}

void Invariants::OnSend(uint64_t incarnation, Worker& worker, const pb::RouterMessage& message) {
  if (message.has_reserve()) return OnReserve(incarnation, worker, message.reserve());
  if (message.has_prefill()) return OnPrefill(incarnation, worker, message.prefill());
  if (message.has_drain()) worker.drained = true;
  if (!message.has_cancel() && !message.has_release()) return;
  const pb::RequestKey& named = message.has_cancel() ? message.cancel().key() : message.release().key();
  const Key key{named.request_id(), named.attempt()};
  DropPromise(key, incarnation);
  const auto hold = worker.holds.find(key);
  if (hold == worker.holds.end()) return;
  if (message.has_cancel()) {
    hold->second.loose = std::min(hold->second.loose, cluster_.now());
  } else {  // is not answered
    worker.holds.erase(hold);
    who_[key].erase(incarnation);
  }
}

void Invariants::OnReserve(uint64_t incarnation, Worker& worker, const pb::Reserve& reserve) {
  const Key key{reserve.key().request_id(), reserve.key().attempt()};
  newest_[key.first] = std::max(newest_[key.first], key.second);
  waiting_.erase(key.first);
  CheckMayWork(worker, "a Reserve");
  const pb::SequenceSpec& spec = reserve.sequence();
  const int size = worker.info.fingerprint().block_size();
  const int n = std::max(1, spec.sampling().n());
  Hold hold;
  const int64_t one = BlocksOf(spec.num_prompt_tokens() + spec.sampling().max_tokens(), size);
  hold.blocks = one + int64_t(n - 1) * (one - spec.tokens_size() / size);
  hold.choices = n;
  hold.prompt = hold.backlog = reserve.compute_prompt() ? spec.tokens_size() : 0;
  CheckCredit(incarnation, worker, hold);
  Add(incarnation, key, hold);
  if (reserve.prefill_incarnation() == 0) return;
  const uint64_t prefill = reserve.prefill_incarnation();
  CheckMayWork(workers_[prefill], "the prompt of a Reserve");
  Hold prompt;
  prompt.blocks = BlocksOf(spec.tokens_size(), size);
  prompt.choices = 0;
  prompt.prompt = prompt.backlog = spec.tokens_size();
  prompt.promised = true;
  CheckCredit(prefill, workers_[prefill], prompt);
  Add(prefill, key, prompt);
}

void Invariants::OnPrefill(uint64_t incarnation, Worker& worker, const pb::Prefill& prefill) {
  const Key key{prefill.key().request_id(), prefill.key().attempt()};
  newest_[key.first] = std::max(newest_[key.first], key.second);
  waiting_.erase(key.first);
  const auto hold = worker.holds.find(key);
  if (hold != worker.holds.end()) {
    hold->second.promised = false;
    return;
  }
  if (prefill.has_lease()) return violate_(absl::StrCat("a Prefill at ", Name(worker), ", which was not chosen"));
  CheckMayWork(worker, "a Prefill");
  Hold prompt;
  const pb::SequenceSpec& spec = prefill.sequence();
  prompt.blocks =
      BlocksOf(spec.num_prompt_tokens() + spec.sampling().max_tokens(), worker.info.fingerprint().block_size());
  prompt.prompt = prompt.backlog = spec.tokens_size();
  CheckCredit(incarnation, worker, prompt);
  Add(incarnation, key, prompt);
}

void Invariants::Add(uint64_t incarnation, const Key& key, Hold hold) {
  if (!workers_[incarnation].holds.emplace(key, hold).second) {
    violate_(absl::StrCat(key.first, " attempt ", key.second, " went to ", Name(workers_[incarnation]), " twice"));
  }
  who_[key].insert(incarnation);
}

void Invariants::CheckMayWork(const Worker& worker, const char* what) {
  const char* why = nullptr;
  if (worker.gone) why = "is GONE";
  if (!worker.linked || worker.session == 0) why = "has lost a stream";
  if (worker.report.draining() || worker.drained) why = "is DRAINING";
  if (worker.report.stuck()) why = "is stuck";
  if (cluster_.now() >= worker.last_heard + 3 * options_.registry.heartbeat) why = "is not heard";
  if (why != nullptr) violate_(absl::StrCat(Name(worker), " gets ", what, " though it ", why));
}

void Invariants::CheckCredit(uint64_t incarnation, Worker& worker, const Hold& added) {
  const absl::Time now = cluster_.now();
  ModelWorker* real = cluster_.WorkerOf(incarnation);
  int64_t blocks = added.blocks;
  int64_t choices = added.choices;
  int64_t backlog = 0;
  for (auto it = worker.holds.begin(); it != worker.holds.end();) {
    const Hold& hold = it->second;
    const absl::Duration lease = hold.lease > absl::ZeroDuration() ? hold.lease : options_.registry.lease;
    if (hold.loose != absl::InfiniteFuture() && hold.loose + lease <= now) {  // the core has forgotten it, too
      who_[it->first].erase(incarnation);
      it = worker.holds.erase(it);
      continue;
    }
    // A report may have told that it is over before its own words do.
    if (!hold.reached || (real != nullptr && real->Has(it->first.first, it->first.second))) blocks += hold.blocks;
    choices += hold.choices;
    backlog += hold.backlog;
    ++it;
  }
  if (worker.from_stream && blocks > worker.info.blocks_total()) {
    violate_(absl::StrCat(Name(worker), " is given ", blocks, " of ", worker.info.blocks_total(), " blocks"));
  }
  if (choices > worker.info.max_running()) {
    violate_(absl::StrCat(Name(worker), " is given ", choices, " sequences of ", worker.info.max_running()));
  }
  const int64_t step = worker.info.max_step_tokens();
  // Where the core expects to find prefixes, it counts on less to compute than these books do.
  const bool exact = options_.prefix_entries == 0;
  if (exact && worker.info.role() == pb::ROLE_PREFILL && backlog >= step &&
      backlog - step + added.backlog > 3 * step / 2) {
    violate_(absl::StrCat(Name(worker), " gets a prompt of ", added.backlog, " beyond a backlog of ", backlog));
  }
}

void Invariants::Reached(const ModelWorker& worker, const pb::RouterMessage& message) {
  if (!message.has_reserve() && !message.has_prefill()) return;
  const pb::RequestKey& named = message.has_reserve() ? message.reserve().key() : message.prefill().key();
  const auto it = workers_.find(worker.incarnation());
  if (it == workers_.end()) return;
  const auto hold = it->second.holds.find(Key{named.request_id(), named.attempt()});
  if (hold != it->second.holds.end()) hold->second.reached = true;
}

void Invariants::After() {
  if (int(waiting_.size()) > options_.queue.limit) {
    violate_(absl::StrCat(waiting_.size(), " new requests wait; the queue takes ", options_.queue.limit));
  }
  if (cluster_.same_moment_ticks() > 100) violate_("the clock stands still: the core wants to be called without end");
}

}  // namespace sluice::simulation
