#include "simulation/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {

Cluster::Cluster(const ClusterOptions& options, ClusterHooks hooks)
    : options_(options),
      hooks_(std::move(hooks)),
      rng_(options.seed),
      network_(options.network, schedule_, rng_),
      kv_links_(
          network_, schedule_, rng_,
          [this](uint64_t incarnation) {
            const auto it = slot_of_.find(incarnation);
            if (it == slot_of_.end()) return KvLinks::Process{};
            return KvLinks::Process{slots_[size_t(it->second)].worker.get(), NodeOf(it->second)};
          },
          [this](ModelWorker& prefill) { ReportSoon(prefill); }),
      core_(options.core) {
  for (const WorkerModel& model : options.workers) slots_.push_back({.model = model, .worker = nullptr});
}

ModelWorker* Cluster::WorkerOf(uint64_t incarnation) {
  const auto it = slot_of_.find(incarnation);
  return it == slot_of_.end() ? nullptr : slots_[size_t(it->second)].worker.get();
}

// ---- the core ----

void Cluster::Post(router::Event event) {
  const absl::Time until = network_.frozen_until(kRouter);
  if (until <= now()) return Do(std::move(event));
  schedule_.At(until, [this, event = std::move(event)]() mutable { Post(std::move(event)); });
}

void Cluster::Do(router::Event event) {
  if (stopped_) return;
  ++events_;
  if (hooks_.before) hooks_.before(event);
  std::vector<router::Action> actions = core_.Handle(std::move(event), now());
  for (router::Action& action : actions) {
    if (hooks_.action) hooks_.action(action);
    CarryOut(action);
  }
  if (hooks_.after) hooks_.after();
  TickWhenDue();
}

void Cluster::TickWhenDue() {
  const absl::Time next = core_.NextDeadline();
  if (next >= tick_at_ || stopped_) return;
  tick_at_ = next;
  schedule_.At(next, [this, next] {
    if (next != tick_at_) return;  // another one was due earlier
    tick_at_ = absl::InfiniteFuture();
    ticks_now_ = last_tick_ == now() ? ticks_now_ + 1 : 1;
    same_moment_ticks_ = std::max(same_moment_ticks_, ticks_now_);
    last_tick_ = now();
    Post(router::Tick{});
  });
}

void Cluster::CarryOut(router::Action& action) {
  if (auto* send = std::get_if<router::SendToWorker>(&action)) {
    const auto link = links_.find(send->link);
    if (link == links_.end()) return;
    network_.Send(
        link->second.connection, Network::kDialer,
        [this, slot = link->second.slot, connection = link->second.connection, message = std::move(send->message)] {
          ModelWorker* worker = slots_[size_t(slot)].worker.get();
          if (worker == nullptr) return;
          if (hooks_.reached) hooks_.reached(*worker, message);
          worker->OnMessage(connection, message);
        });
  } else if (const auto* connect = std::get_if<router::ConnectWorker>(&action)) {
    Connect(*connect);
  } else if (const auto* disconnect = std::get_if<router::DisconnectWorker>(&action)) {
    const auto link = links_.find(disconnect->link);
    if (link == links_.end()) return;
    network_.Close(link->second.connection, Network::kDialer, absl::CancelledError(disconnect->why));
    link_of_.erase(link->second.connection);
    links_.erase(link);
    schedule_.At(now(), [this, link = disconnect->link] {
      Post(router::LinkDown{link, absl::CancelledError("disconnected")});
    });
  } else if (const auto* answer = std::get_if<router::AnswerAnnounce>(&action)) {
    const auto session = sessions_.find(answer->session);
    if (session == sessions_.end()) return;
    const uint64_t connection = session->second;
    network_.Send(connection, Network::kListener, [this, connection, reply = answer->reply] {
      const auto slot = announces_.find(connection);
      if (slot != announces_.end()) OnReply(slot->second, connection, reply);
    });
  } else if (const auto* close = std::get_if<router::CloseAnnounce>(&action)) {
    const auto session = sessions_.find(close->session);
    if (session == sessions_.end()) return;
    network_.Close(session->second, Network::kListener, close->status);
    session_of_.erase(session->second);
    sessions_.erase(session);
    schedule_.At(now(), [this, session = close->session] { Post(router::AnnounceLost{session}); });
  } else if (const auto* pool = std::get_if<router::PoolChanged>(&action)) {
    pool_ = *pool;
  }
}

// ---- the Work streams ----

int Cluster::SlotOf(const pb::Endpoint& endpoint) const {
  return endpoint.port() - 7000;
}

void Cluster::Connect(const router::ConnectWorker& action) {
  const int slot = SlotOf(action.endpoint);
  auto id = std::make_shared<uint64_t>(0);  // known when Connect returns
  const uint64_t link = action.link;
  const uint64_t connection = network_.Connect(
      kRouter, NodeOf(slot), options_.patience,
      [this, link, id](const absl::Status& why) {
        links_.erase(link);
        link_of_.erase(*id);
        Post(router::LinkDown{link, why});
      },
      [this, slot, id](const absl::Status&) {
        if (ModelWorker* worker = slots_[size_t(slot)].worker.get(); worker != nullptr) worker->OnStreamEnd(*id);
      });
  *id = connection;
  links_[link] = {connection, action.incarnation, slot};
  link_of_[connection] = link;
  pb::RouterMessage hello;
  hello.mutable_hello()->set_router_incarnation(options_.core.router_incarnation);
  hello.mutable_hello()->set_worker_incarnation(action.incarnation);
  network_.Send(connection, Network::kDialer, [this, slot, connection, hello] {
    ModelWorker* worker = slots_[size_t(slot)].worker.get();
    if (worker != nullptr) return worker->OnMessage(connection, hello);
    network_.Close(connection, Network::kListener, absl::UnavailableError("connection refused"));
  });
}

void Cluster::ToRouter(ModelWorker&, uint64_t stream, pb::WorkerMessage message) {
  network_.Send(stream, Network::kListener, [this, stream, message = std::move(message)]() mutable {
    const auto link = link_of_.find(stream);
    if (link != link_of_.end()) Arrived(link->second, std::move(message));
  });
}

void Cluster::Arrived(uint64_t link, pb::WorkerMessage message) {
  if (message.has_hello()) Post(router::LinkUp{link, message.hello()});
  Post(router::WorkerBatch{link, std::move(message)});
}

void Cluster::CloseStream(ModelWorker&, uint64_t stream, const absl::Status& why) {
  network_.Close(stream, Network::kListener, why);
}

void Cluster::ToPeer(ModelWorker& from, uint64_t peer, KvMessage message) {
  kv_links_.Send(from, peer, std::move(message));
}

absl::Time Cluster::FrozenUntil(const ModelWorker& worker) const {
  const auto it = slot_of_.find(worker.incarnation());
  return it == slot_of_.end() ? absl::InfinitePast() : network_.frozen_until(NodeOf(it->second));
}

bool Cluster::CutWork(int slot) {
  uint64_t newest = 0;
  for (const auto& [id, link] : links_) {
    if (link.slot == slot) newest = std::max(newest, link.connection);
  }
  if (newest != 0) network_.Cut(newest);
  return newest != 0;
}

bool Cluster::CutAnnounce(int slot) {
  const uint64_t connection = slots_[size_t(slot)].announce;
  if (connection != 0) network_.Cut(connection);
  return connection != 0;
}

}  // namespace sluice::simulation
