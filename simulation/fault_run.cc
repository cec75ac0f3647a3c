#include "simulation/fault_run.h"

#include <cstdio>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/names.h"
#include "simulation/digest.h"
#include "simulation/invariants.h"
#include "simulation/random_clients.h"

namespace sluice::simulation {
namespace {

constexpr absl::Duration kWarmUp = absl::Seconds(1);       // until pairs are up
constexpr absl::Duration kMostCalm = absl::Seconds(120);   // until every request has ended
constexpr absl::Duration kMostSettle = absl::Seconds(20);  // until nothing is left of them

class FaultRun {
 public:
  explicit FaultRun(const FaultRunOptions& options) : options_(options), rng_(options.seed) {
    MakeWorkers();
    core_options_.registry.model_hash = "simulated";
    core_options_.registry.heartbeat = absl::Milliseconds(200);
    core_options_.registry.lease = absl::Seconds(2);
    core_options_.queue.limit = 20;
    core_options_.queue.tenant_limit = rng_.OneIn(4) ? 10 : 0;
    core_options_.seed = rng_.Next();
    core_options_.policy.policy =
        std::vector<router::Policy>{router::Policy::kSlo, router::Policy::kPrefix, router::Policy::kLeastLoaded,
                                    router::Policy::kRoundRobin}[rng_.OneIn(2) ? 0 : rng_.Below(4)];
    core_options_.policy.local_prefill_tokens = rng_.OneIn(3) ? rng_.Between(8, 64) : 0;
    core_options_.prefix_entries = rng_.OneIn(3) ? 0 : rng_.OneIn(4) ? 100 : 1 << 20;
    ClusterOptions cluster{.seed = rng_.Next(), .core = core_options_, .network = {}, .workers = {}};
    if (rng_.OneIn(3)) cluster.network.most_delay = absl::Milliseconds(30);
    cluster.workers = good_;
    cluster_ = std::make_unique<Cluster>(
        cluster,
        ClusterHooks{[this](const auto& event) { Before(event); }, [this](const auto& action) { Saw(action); },
                     [this] { invariants_->After(); },
                     [this](const auto& worker, const auto& message) { invariants_->Reached(worker, message); }});
    const auto violate = [this](std::string what) { Violate(std::move(what)); };
    invariants_ = std::make_unique<Invariants>(core_options_, *cluster_, violate);
    RandomClientsOptions clients;
    clients.every = rng_.Between(absl::Milliseconds(10), absl::Milliseconds(120));
    clients_ = std::make_unique<RandomClients>(clients, *cluster_, rng_, violate);
    faults_ = std::make_unique<Faults>(*cluster_, Rng(rng_.Next()), spared_);
  }

  FaultRunResult Run() {
    for (int slot = 0; slot < cluster_->slots(); ++slot) cluster_->Start(slot);
    RunUntil(kStart + kWarmUp, [] { return false; });
    for (int slot = 0; slot < cluster_->slots(); ++slot) {
      if (!spared_.contains(slot)) cluster_->set_model(slot, Troubled(good_[size_t(slot)]));
    }
    clients_->Start();
    const int fault_every = rng_.Between(8, 60);
    for (const int64_t until = cluster_->events() + options_.events; Goes() && cluster_->events() < until;) {
      const int64_t before = cluster_->events();
      if (!cluster_->RunNext()) break;
      if (cluster_->events() > before && rng_.OneIn(fault_every)) faults_->Inject();
    }
    clients_->NoMore();
    CollectWorkers();
    faults_->End(good_);
    if (rng_.OneIn(16)) {
      ShutDown();
    } else {
      CalmDown();
    }
    Judge();
    return std::move(result_);
  }

 private:
  bool Goes() const { return result_.violation.empty(); }

  void Violate(std::string what) {
    if (!result_.violation.empty()) return;
    result_.violation = absl::StrFormat("after %d events, at %.6f s: %s", cluster_->events(),
                                        absl::ToDoubleSeconds(cluster_->now() - kStart), what);
    if (options_.trace) std::printf("VIOLATION %s\n", result_.violation.c_str());
  }

  void Before(const router::Event& event) {
    if (options_.trace) {
      std::printf("%.6f %s\n", absl::ToDoubleSeconds(cluster_->now() - kStart), Describe(event).c_str());
    }
    invariants_->Before(event);
  }

  void Saw(const router::Action& action) {
    if (options_.trace) std::printf("    %s\n", Describe(action).c_str());
    digest_.Add(action, cluster_->now());
    clients_->Saw(action);
    invariants_->Saw(action);
  }

  template <typename Done>
  void RunUntil(absl::Time until, Done done) {
    while (Goes() && !done() && cluster_->schedule().next() <= until) cluster_->RunNext();
  }

  // One worker of role both at least, or a pair; in most runs that one is spared from all faults.
  void MakeWorkers() {
    const int both = int(rng_.Below(3));
    const int pairs = both == 0 ? 1 + int(rng_.Below(3)) : int(rng_.Below(3));
    std::vector<pb::Role> roles(size_t(both), pb::ROLE_BOTH);
    for (int i = 0; i < pairs; ++i) {
      roles.push_back(pb::ROLE_PREFILL);
      roles.push_back(pb::ROLE_DECODE);
    }
    if (pairs > 0 && rng_.OneIn(3)) roles.push_back(rng_.OneIn(2) ? pb::ROLE_PREFILL : pb::ROLE_DECODE);
    for (size_t slot = 0; slot < roles.size(); ++slot) {
      WorkerModel model;
      model.role = roles[slot];
      model.blocks = rng_.Between(60, 120);
      model.max_running = rng_.Between(4, 8);
      model.max_step_tokens = 32 << rng_.Below(4);
      model.step_base = rng_.Between(absl::Milliseconds(2), absl::Milliseconds(12));
      model.tokens_per_s = rng_.Between(4000, 20000);
      model.kv_tokens_per_s = rng_.Between(10000, 200000);
      model.caches_prefixes = !rng_.OneIn(4);
      // Who does not fit the others; never the first.
      if (slot > size_t(both) + 1 && rng_.OneIn(16)) model.kind = 1;
      good_.push_back(model);
      absl::StrAppend(&result_.cluster, slot == 0 ? "" : " ", RoleName(model.role));
    }
    if (rng_.OneIn(4)) return;
    spared_.insert(0);
    if (both == 0) spared_.insert(1);
    result_.cluster += ", the first lives";
  }

  WorkerModel Troubled(WorkerModel model) {
    if (rng_.OneIn(2)) model.refuse_one_in = rng_.Between(8, 40);
    if (rng_.OneIn(2)) model.fail_one_in = rng_.Between(50, 400);
    if (rng_.OneIn(3)) model.corrupt_one_in = rng_.Between(4, 20);
    if (rng_.OneIn(3)) model.lose_one_in = rng_.Between(4, 20);
    return model;
  }

  void CollectWorkers() {
    Counters& counters = result_.counters;
    for (int slot = 0; slot < cluster_->slots(); ++slot) {
      if (!cluster_->alive(slot)) continue;
      const ModelWorker::Totals& totals = cluster_->worker(slot)->totals();
      counters["requests failed at a worker"] += totals.injected;
      counters["requests refused by a worker"] += totals.refused;
      counters["transfers lost or corrupt"] += totals.bad_transfers;
      counters["leases expired"] += totals.expired;
      counters["requests that came with a part of their answer"] += totals.replayed;
      counters["tokens found in a prefix cache"] += totals.hit_tokens;
    }
  }

  void ShutDown() {
    cluster_->Post(router::Shutdown{});
    RunUntil(cluster_->now() + kMostSettle, [this] { return clients_->all_ended(); });
    cluster_->Stop();
    RunUntil(cluster_->now() + kMostSettle, [this] { return WorkersIdle(); });
    if (Goes() && !clients_->all_ended()) Violate("requests live after the router has shut down");
    if (Goes() && !WorkersIdle()) Violate("workers hold requests of a router that has shut down");
    result_.counters["router shut down"] += 1;
  }

  void CalmDown() {
    const auto nothing_left = [this] {
      return cluster_->core().sizes() == router::RouterCore::Sizes{} && WorkersIdle();
    };
    RunUntil(cluster_->now() + kMostCalm, [this] { return clients_->all_ended(); });
    if (Goes() && !clients_->all_ended()) {
      for (const auto& [call, client] : clients_->clients()) {
        if (!client->ended()) return Violate(absl::StrCat("call ", call, " never ends"));
      }
    }
    RunUntil(cluster_->now() + kMostSettle, nothing_left);
    if (!Goes() || nothing_left()) return;
    const router::RouterCore::Sizes sizes = cluster_->core().sizes();
    Violate(absl::StrCat("something is left: ", sizes.requests, " requests, ", sizes.wire_ids, " names, ", sizes.queued,
                         " queued, ", sizes.deadlines, " deadlines, ", sizes.closing, " closing, ", sizes.parked,
                         " parked, ", sizes.attempts, " attempts in the load model; workers ", Held()));
  }

  std::string Held() const {
    std::string held;
    for (int slot = 0; slot < cluster_->slots(); ++slot) {
      if (!cluster_->alive(slot)) continue;
      for (const auto& [id, job] : cluster_->worker(slot)->jobs()) {
        absl::StrAppend(&held, " w", slot, " holds ", job.key.request_id(), "#", job.key.attempt(), " in state ",
                        int(job.state), ", ", job.computed, " of ", job.tokens, " computed, peer ", job.peer);
      }
    }
    return held;
  }

  bool WorkersIdle() const {
    for (int slot = 0; slot < cluster_->slots(); ++slot) {
      if (cluster_->alive(slot) && !cluster_->worker(slot)->idle()) return false;
    }
    return true;
  }

  // Whose only misfortune were failures of workers has its answer, as long as a pair of workers lived.
  void Judge() {
    const bool shut_down = result_.counters.contains("router shut down");
    for (const auto& [call, client] : clients_->clients()) {
      ++result_.requests;
      result_.good += client->ended() && client->status().ok();
      result_.counters["moves of requests"] += client->moves();
      if (!client->innocent() || spared_.empty() || shut_down || !Goes()) continue;
      ++result_.innocent;
      if (client->status().ok()) continue;
      const bool untouched = client->moves() == 0 && client->got(0) == 0;
      if (absl::IsResourceExhausted(client->status()) && untouched) {
        ++result_.full;
      } else if (client->moves() >= core_options_.request.moves.in_a_row) {
        ++result_.exhausted;
      } else {
        Violate(absl::StrCat("call ", call, " was lost though a pair of workers lived: ", client->status().ToString()));
      }
    }
    result_.counters.insert(faults_->counters().begin(), faults_->counters().end());
    result_.counters["clients that went away"] += clients_->totals().cancels;
    result_.counters["stop strings found"] += clients_->totals().stops;
    result_.counters["deadlines passed"] += clients_->totals().deadlines;
    result_.counters["requests for several answers"] += clients_->totals().several;
    result_.counters["events of old attempts"] += invariants_->stale_events();
    result_.counters["tokens of D before P's first"] += invariants_->early_events();
    result_.counters["pairs lost"] += cluster_->kv_links().lost();
    result_.digest = digest_.value();
    result_.events = cluster_->events();
  }

  const FaultRunOptions options_;
  Rng rng_;
  FaultRunResult result_;
  router::CoreOptions core_options_;
  std::vector<WorkerModel> good_;
  std::set<int> spared_;
  Digest digest_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Invariants> invariants_;
  std::unique_ptr<RandomClients> clients_;
  std::unique_ptr<Faults> faults_;
};

}  // namespace

FaultRunResult RunWithFaults(const FaultRunOptions& options) {
  return FaultRun(options).Run();
}

}  // namespace sluice::simulation
