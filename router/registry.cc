#include "router/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/names.h"

namespace sluice::router {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLastBackoff = absl::Seconds(2);
constexpr absl::Duration kLate = absl::Seconds(1);
constexpr absl::Duration kGrace = absl::Seconds(1);

}  // namespace

std::string WorkerRecord::name() const {
  return absl::StrCat(RoleName(info.role()), " ", info.work().host(), ":", info.work().port());
}

absl::Status Registry::CheckFit(const pb::WorkerInfo& info) const {
  const auto unfit = [](std::string what) {
    return absl::FailedPreconditionError(absl::StrCat("INCOMPATIBLE: ", what));
  };
  if (info.incarnation() == 0) return unfit("the worker names no incarnation");
  if (info.work().port() <= 0 || info.work().host().empty()) return unfit("the worker names no Work endpoint");
  if (info.role() != pb::ROLE_BOTH && info.role() != pb::ROLE_PREFILL && info.role() != pb::ROLE_DECODE) {
    return unfit(absl::StrFormat("role %d is not known to this router; use binaries of one build", int(info.role())));
  }
  const pb::Fingerprint& fingerprint = info.fingerprint();
  if (fingerprint.protocol_version() != kProtocolVersion) {
    return unfit(absl::StrFormat("the worker speaks protocol %d, the router %d; use binaries of one build",
                                 fingerprint.protocol_version(), kProtocolVersion));
  }
  if (fingerprint.block_size() <= 0) return unfit("the worker names no block size");
  if (!options_.model_hash.empty() && fingerprint.model_hash() != options_.model_hash) {
    return unfit(absl::StrFormat(
        "the worker serves model \"%s\" (hash %s), the router \"%s\" (hash %s); start both with the same --model",
        info.model(), fingerprint.model_hash().substr(0, 12), options_.model, options_.model_hash.substr(0, 12)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Registry::Loss>> Registry::Announce(uint64_t session, const pb::WorkerInfo& info,
                                                               absl::Time now) {
  if (absl::Status fit = CheckFit(info); !fit.ok()) return fit;
  std::vector<Loss> losses;
  for (auto& [incarnation, worker] : workers_) {
    const bool same_address =
        worker.info.work().host() == info.work().host() && worker.info.work().port() == info.work().port();
    if (incarnation != info.incarnation() && same_address && worker.state != pb::WORKER_STATE_GONE) {
      losses.push_back(MakeGone(worker, now, "the worker was restarted"));
    }
  }
  WorkerRecord& worker = workers_[info.incarnation()];
  if (worker.state == pb::WORKER_STATE_GONE) {  // it was silent for a lease and is back
    const bool told = worker.told_to_drain;     // though it may not have heard
    SetDeadline(worker, absl::InfiniteFuture());
    worker = WorkerRecord();
    worker.told_to_drain = told;
  }
  if (worker.incarnation() == 0) worker.connect_at = now;
  worker.info = info;
  worker.shown = worker.name();
  sessions_.erase(worker.session);
  worker.session = session;
  worker.last_heard = now;
  sessions_[session] = info.incarnation();
  UpdateState(worker, now);
  Touch(worker);
  ++version_;
  ++peers_version_;
  return losses;
}

void Registry::Drain(WorkerRecord& worker, absl::Time now) {
  worker.told_to_drain = true;
  UpdateState(worker, now);
  Touch(worker);
}

bool Registry::Heartbeat(uint64_t session, const pb::WorkerReport& report, absl::Time now) {
  WorkerRecord* worker = FindSession(session);
  if (worker == nullptr) return false;
  worker->last_heard = now;
  const bool fresh = Report(*worker, report);
  UpdateState(*worker, now);
  Touch(*worker);
  return fresh;
}

bool Registry::Report(WorkerRecord& worker, const pb::WorkerReport& report) {
  if (report.sequence() <= worker.report.sequence()) return false;  // counts from 1
  if (report.draining() != worker.draining || report.stuck() != worker.report.stuck()) Touch(worker);
  worker.report = report;
  worker.draining = report.draining();
  return true;
}

std::vector<Registry::PairChange> Registry::UpdatePairs(WorkerRecord& worker) {
  const auto state_of = [](const pb::PairStatus& pair) {
    return pair.up() ? PairState::kUp : pair.has_refused() ? PairState::kRefused : PairState::kUnknown;
  };
  // The same as before, in the same order: nearly always.
  if (worker.report.pairs_size() == int(worker.pairs.size()) &&
      std::equal(worker.pairs.begin(), worker.pairs.end(), worker.report.pairs().begin(),
                 [&](const auto& known, const pb::PairStatus& pair) {
                   return known.first == pair.decode_incarnation() && known.second == state_of(pair);
                 })) {
    return {};
  }
  ++version_;
  std::map<uint64_t, PairState> reported;
  std::map<uint64_t, std::string> reasons;
  for (const pb::PairStatus& pair : worker.report.pairs()) {
    const uint64_t decode = pair.decode_incarnation();
    reported[decode] = state_of(pair);
    reasons[decode] = pair.refused().message();
  }
  std::vector<PairChange> changes;
  for (const auto& [decode, state] : reported) {
    const PairState before = Pair(worker.incarnation(), decode);
    if (state != before) changes.push_back({decode, before, state, reasons[decode]});
  }
  worker.pairs.assign(reported.begin(), reported.end());
  return changes;
}

PairState Registry::Pair(uint64_t prefill, uint64_t decode) const {
  auto worker = workers_.find(prefill);
  if (worker == workers_.end()) return PairState::kUnknown;
  const auto& pairs = worker->second.pairs;
  const auto pair = std::lower_bound(pairs.begin(), pairs.end(), decode,
                                     [](const auto& known, uint64_t incarnation) { return known.first < incarnation; });
  return pair == pairs.end() || pair->first != decode ? PairState::kUnknown : pair->second;
}

std::vector<uint64_t> Registry::DecodePeers() const {
  std::vector<uint64_t> peers;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.info.role() == pb::ROLE_DECODE && worker.state != pb::WORKER_STATE_GONE) peers.push_back(incarnation);
  }
  return peers;
}

pb::DecodePeer Registry::PeerOf(uint64_t decode) const {
  const pb::WorkerInfo& info = workers_.at(decode).info;
  pb::DecodePeer peer;
  peer.set_incarnation(decode);
  // Links come to a rank's own endpoint; one without is reached where the worker listens.
  const bool own = info.ranks_size() > 0 && info.ranks(0).control().port() > 0;
  *peer.mutable_control() = own ? info.ranks(0).control() : info.work();
  if (peer.control().host().empty()) peer.mutable_control()->set_host(info.work().host());
  return peer;
}

std::vector<Registry::Loss> Registry::Leaving(uint64_t session, absl::Time now) {
  WorkerRecord* worker = FindSession(session);
  if (worker == nullptr) return {};
  return {MakeGone(*worker, now, "the worker shut down")};
}

void Registry::AnnounceLost(uint64_t session) {
  if (WorkerRecord* worker = FindSession(session); worker != nullptr) {
    worker->session = 0;
    sessions_.erase(session);
    UpdateState(*worker, worker->last_heard);
    Touch(*worker);
    ++version_;
  }
}

void Registry::Connecting(WorkerRecord& worker, uint64_t link) {
  worker.link = link;
  worker.linked = false;
  worker.connect_at = absl::InfiniteFuture();
  links_[link] = worker.incarnation();
  Touch(worker);
}

WorkerRecord* Registry::LinkUp(uint64_t link) {
  WorkerRecord* worker = FindLink(link);
  if (worker == nullptr) return nullptr;
  worker->linked = true;
  worker->backoff = absl::ZeroDuration();
  UpdateState(*worker, worker->last_heard);
  Touch(*worker);
  ++version_;
  return worker;
}

WorkerRecord* Registry::LinkDown(uint64_t link, absl::Time now) {
  WorkerRecord* worker = FindLink(link);
  if (worker == nullptr) return nullptr;
  worker->link = 0;
  worker->linked = false;
  worker->backoff = std::clamp(2 * worker->backoff, kFirstBackoff, kLastBackoff);
  worker->connect_at = now + worker->backoff;
  links_.erase(link);
  UpdateState(*worker, now);
  Touch(*worker);
  ++version_;
  return worker;
}

Registry::Loss Registry::MakeGone(WorkerRecord& worker, absl::Time now, std::string why) {
  Loss loss{worker.incarnation(), worker.link, worker.session, absl::StrCat(worker.name(), ": ", why)};
  links_.erase(worker.link);
  sessions_.erase(worker.session);
  worker.state = pb::WORKER_STATE_GONE;
  worker.gone_at = now;
  worker.session = 0;
  worker.link = 0;
  worker.linked = false;
  worker.connect_at = absl::InfiniteFuture();
  Touch(worker);
  ++version_;
  ++peers_version_;
  return loss;
}

void Registry::UpdateState(WorkerRecord& worker, absl::Time now) {
  if (worker.state == pb::WORKER_STATE_GONE) return;
  const pb::WorkerState before = worker.state;
  if (worker.session == 0 || !worker.linked || worker.report.stuck() || now >= SuspectAt(worker)) {
    worker.state = pb::WORKER_STATE_SUSPECT;
  } else {
    worker.state = worker.draining || worker.told_to_drain ? pb::WORKER_STATE_DRAINING : pb::WORKER_STATE_ACTIVE;
  }
  if (worker.state != before) ++version_;
}

void Registry::Touch(WorkerRecord& worker) {
  touched_.push_back(worker.incarnation());
  SetDeadline(worker, DeadlineOf(worker));
}

void Registry::SetDeadline(WorkerRecord& worker, absl::Time at) {
  if (at == worker.deadline) return;
  deadlines_.erase({worker.deadline, worker.incarnation()});
  worker.deadline = at;
  if (at != absl::InfiniteFuture()) deadlines_.emplace(at, worker.incarnation());
}

absl::Time Registry::DeadlineOf(const WorkerRecord& worker) const {
  if (worker.state == pb::WORKER_STATE_GONE) return worker.gone_at + options_.lease;
  absl::Time next = std::min(std::max(worker.last_heard + options_.lease, worker.grace_end), worker.connect_at);
  if (worker.state != pb::WORKER_STATE_SUSPECT) next = std::min(next, SuspectAt(worker));
  return next;
}

bool Registry::IsSilent(WorkerRecord& worker, absl::Time now, bool stood_still) const {
  const absl::Time due = worker.last_heard + options_.lease;
  if (now < due) {
    worker.grace_end = absl::InfinitePast();
    return false;
  }
  if (worker.grace_end == absl::InfinitePast() && (stood_still || now - due > kLate)) worker.grace_end = now + kGrace;
  return now >= worker.grace_end;
}

std::vector<Registry::Loss> Registry::Advance(absl::Time now) {
  std::vector<Loss> losses;
  const bool stood_still = now - due_ > kLate;
  std::vector<uint64_t> due = std::exchange(touched_, {});
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first <= now; ++it) due.push_back(it->second);
  std::sort(due.begin(), due.end());
  due.erase(std::unique(due.begin(), due.end()), due.end());
  for (uint64_t incarnation : due) {
    const auto it = workers_.find(incarnation);
    if (it == workers_.end()) continue;
    WorkerRecord& worker = it->second;
    if (worker.state == pb::WORKER_STATE_GONE) {
      if (now < worker.gone_at + options_.lease) continue;
      SetDeadline(worker, absl::InfiniteFuture());
      workers_.erase(it);
      ++version_;
      continue;
    }
    UpdateState(worker, now);
    if (IsSilent(worker, now, stood_still)) {
      losses.push_back(
          MakeGone(worker, now, absl::StrFormat("no heartbeat for %s", absl::FormatDuration(now - worker.last_heard))));
    }
    SetDeadline(worker, DeadlineOf(worker));
  }
  due_ = NextDeadline();
  return losses;
}

absl::Time Registry::NextDeadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

std::vector<uint64_t> Registry::DueToConnect(absl::Time now) const {
  std::vector<uint64_t> due;
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first <= now; ++it) {
    const WorkerRecord& worker = workers_.at(it->second);
    if (worker.state == pb::WORKER_STATE_GONE || worker.link != 0 || worker.connect_at > now) continue;
    due.push_back(it->second);
  }
  std::sort(due.begin(), due.end());
  return due;
}

WorkerRecord* Registry::Find(uint64_t incarnation) {
  auto it = workers_.find(incarnation);
  return it == workers_.end() ? nullptr : &it->second;
}

WorkerRecord* Registry::FindLink(uint64_t link) {
  const auto it = links_.find(link);
  WorkerRecord* worker = link == 0 || it == links_.end() ? nullptr : Find(it->second);
  return worker != nullptr && worker->link == link ? worker : nullptr;
}

WorkerRecord* Registry::FindSession(uint64_t session) {
  const auto it = sessions_.find(session);
  WorkerRecord* worker = session == 0 || it == sessions_.end() ? nullptr : Find(it->second);
  return worker != nullptr && worker->session == session ? worker : nullptr;
}

}  // namespace sluice::router
