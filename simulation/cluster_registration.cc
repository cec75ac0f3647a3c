// The lives of the workers' processes, and how they announce themselves: one stream to the router, heartbeats at the
// pace that it asks for, a new try after a loss with growing pauses.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "simulation/cluster.h"

namespace sluice::simulation {

void Cluster::Start(int slot) {
  Slot& s = slots_[size_t(slot)];
  if (s.worker != nullptr) return;
  const uint64_t incarnation = rng_.Next() >> 8;
  s = {.model = s.model, .worker = nullptr};
  s.worker =
      std::make_unique<ModelWorker>(incarnation, s.model, static_cast<WorkerSurroundings&>(*this), schedule_, rng_);
  slot_of_[incarnation] = slot;
  network_.Thaw(NodeOf(slot));
  Announce(slot);
}

void Cluster::Kill(int slot, bool silent) {
  Slot& s = slots_[size_t(slot)];
  if (s.worker == nullptr) return;
  const uint64_t incarnation = s.worker->incarnation();
  network_.Crash(NodeOf(slot), silent);
  kv_links_.Forget(incarnation);
  slot_of_.erase(incarnation);
  announces_.erase(s.announce);
  s = {.model = s.model, .worker = nullptr};
}

void Cluster::ShutDown(int slot) {
  ModelWorker* worker = slots_[size_t(slot)].worker.get();
  if (worker == nullptr) return;
  SendAnnouncement(slot, false, true);
  worker->ShutDown();
  Later(slot, now() + absl::Milliseconds(50), [this, slot] { Kill(slot, false); });
}

void Cluster::set_model(int slot, const WorkerModel& model) {
  slots_[size_t(slot)].model = model;
  if (slots_[size_t(slot)].worker != nullptr) slots_[size_t(slot)].worker->set_model(model);
}

void Cluster::Later(int slot, absl::Time at, Schedule::What what) {
  const ModelWorker* worker = slots_[size_t(slot)].worker.get();
  if (worker == nullptr) return;
  schedule_.At(at, [this, slot, incarnation = worker->incarnation(), what = std::move(what)]() mutable {
    const auto it = slot_of_.find(incarnation);
    if (it == slot_of_.end()) return;
    const absl::Time until = network_.frozen_until(NodeOf(slot));
    if (until > now()) return Later(slot, until, std::move(what));
    what();
  });
}

pb::WorkerInfo Cluster::InfoOf(int slot) const {
  const Slot& s = slots_[size_t(slot)];
  pb::WorkerInfo info;
  info.set_role(s.model.role);
  info.set_incarnation(s.worker->incarnation());
  info.mutable_fingerprint()->set_model_hash(options_.core.registry.model_hash);
  info.mutable_fingerprint()->set_numerics(kNumerics);
  info.mutable_fingerprint()->set_block_size(s.model.block_size);
  info.mutable_fingerprint()->set_protocol_version(router::kProtocolVersion);
  info.mutable_work()->set_host(absl::StrCat("w", slot));
  info.mutable_work()->set_port(7000 + slot);
  info.set_blocks_total(s.model.blocks);
  info.set_max_running(s.model.max_running);
  info.set_max_step_tokens(s.model.max_step_tokens);
  info.set_context_length(s.model.context_length);
  info.set_prefill_tokens_per_s(s.model.tokens_per_s);
  info.set_decode_step_ms(absl::ToDoubleMilliseconds(s.model.step_base));
  return info;
}

void Cluster::Announce(int slot) {
  auto id = std::make_shared<uint64_t>(0);
  const uint64_t connection = network_.Connect(
      NodeOf(slot), kRouter, options_.patience, [this, slot, id](const absl::Status&) { AnnounceEnded(slot, *id); },
      [this, id](const absl::Status&) {
        const auto session = session_of_.find(*id);
        if (session == session_of_.end()) return;
        const uint64_t lost = session->second;
        sessions_.erase(lost);
        session_of_.erase(session);
        Post(router::AnnounceLost{lost});
      });
  *id = connection;
  Slot& s = slots_[size_t(slot)];
  announces_[connection] = slot;
  s.announce = connection;
  s.announced = false;
  SendAnnouncement(slot, true, false);
}

void Cluster::SendAnnouncement(int slot, bool first, bool leaving) {
  Slot& s = slots_[size_t(slot)];
  if (s.announce == 0) return;
  pb::Announcement announcement;
  if (first) *announcement.mutable_info() = InfoOf(slot);
  *announcement.mutable_report() = s.worker->TakeReport();
  announcement.set_leaving(leaving);
  network_.Send(s.announce, Network::kDialer,
                [this, connection = s.announce, announcement = std::move(announcement)]() mutable {
                  if (announcement.has_info()) {
                    const uint64_t session = next_session_++;
                    sessions_[session] = connection;
                    session_of_[connection] = session;
                    Post(router::WorkerAnnounced{session, announcement.info()});
                  }
                  const auto session = session_of_.find(connection);
                  if (session == session_of_.end()) return;
                  const uint64_t number = session->second;
                  Post(router::WorkerHeartbeat{number, std::move(*announcement.mutable_report())});
                  if (announcement.leaving()) Post(router::WorkerLeaving{number});
                });
}

void Cluster::AnnounceEnded(int slot, uint64_t connection) {
  announces_.erase(connection);
  Slot& s = slots_[size_t(slot)];
  if (s.worker == nullptr || s.announce != connection) return;
  s.announce = 0;
  const absl::Duration pause = std::min(absl::Seconds(1), absl::Milliseconds(100) * (1 << std::min(s.failures, 8)));
  if (!s.announced) ++s.failures;
  Later(slot, now() + pause * (0.5 + 0.5 * rng_.Uniform()), [this, slot] {
    if (slots_[size_t(slot)].announce == 0) Announce(slot);
  });
}

void Cluster::OnReply(int slot, uint64_t connection, const pb::AnnounceReply& reply) {
  Slot& s = slots_[size_t(slot)];
  if (s.worker == nullptr || s.announce != connection) return;
  s.failures = 0;
  s.heartbeat = absl::Milliseconds(std::max(10, reply.heartbeat_ms()));
  if (reply.drain()) s.worker->Drain();
  if (reply.peers_valid()) {
    std::vector<std::pair<uint64_t, Network::Node>> peers;
    for (const pb::DecodePeer& peer : reply.decode_peers()) {
      peers.emplace_back(peer.incarnation(), NodeOf(SlotOf(peer.control())));
    }
    kv_links_.SetPeers(s.worker->incarnation(), peers);
  }
  if (!std::exchange(s.announced, true)) Heartbeat(slot);
}

void Cluster::Heartbeat(int slot) {
  Slot& s = slots_[size_t(slot)];
  if (s.announce == 0 || !s.announced) return;
  SendAnnouncement(slot, false, false);
  s.next_heartbeat = now() + s.heartbeat;
  Later(slot, s.next_heartbeat, [this, slot, due = s.next_heartbeat] {
    if (slots_[size_t(slot)].next_heartbeat == due) Heartbeat(slot);
  });
}

// News that does not wait for the next heartbeat.
void Cluster::ReportSoon(ModelWorker& worker) {
  const auto it = slot_of_.find(worker.incarnation());
  if (it == slot_of_.end()) return;
  Slot& s = slots_[size_t(it->second)];
  if (std::exchange(s.report_due, true)) return;
  Later(it->second, now() + absl::Microseconds(500), [this, slot = it->second] {
    slots_[size_t(slot)].report_due = false;
    Heartbeat(slot);
  });
}

}  // namespace sluice::simulation
