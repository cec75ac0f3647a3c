#include "simulation/faults.h"

namespace sluice::simulation {

int Faults::AnySlot() {
  const int slot = int(rng_.Below(uint64_t(cluster_.slots())));
  return spared_.contains(slot) ? -1 : slot;
}

void Faults::Inject() {
  // Between two of them it hears what has come meanwhile.
  if (rng_.OneIn(40) && cluster_.now() > cluster_.network().frozen_until(Cluster::kRouter) + absl::Milliseconds(300)) {
    Count("router stood still");
    return cluster_.network().Freeze(Cluster::kRouter, rng_.Between(absl::Milliseconds(50), absl::Milliseconds(1500)));
  }
  const int slot = AnySlot();
  if (slot < 0 || !cluster_.alive(slot)) return;
  switch (rng_.Below(5)) {
    case 0:
      return HarmProcess(slot);
    case 1:
      return HarmWork(slot);
    case 2:
    case 3:
      return HarmStream(slot);
    default:
      return HarmNetwork(slot);
  }
}

// On the same address, with an incarnation of its own.
void Faults::Restart(int slot) {
  cluster_.schedule().After(rng_.Between(absl::ZeroDuration(), absl::Milliseconds(1500)), [this, slot] {
    if (cluster_.alive(slot)) return;
    Count("restarted");
    cluster_.Start(slot);
  });
}

void Faults::HarmProcess(int slot) {
  switch (rng_.Below(5)) {
    case 0:
    case 1:
      Count("crashed, connections reset");
      cluster_.Kill(slot, false);
      return Restart(slot);
    case 2:
      Count("crashed in silence");
      cluster_.Kill(slot, true);
      return Restart(slot);
    case 3:
      Count("shut down with a goodbye");
      cluster_.ShutDown(slot);
      return cluster_.schedule().After(absl::Milliseconds(60), [this, slot] { Restart(slot); });
    default:
      Count("drained");
      if (rng_.OneIn(2)) {
        cluster_.worker(slot)->Drain();
      } else {
        Count("drained by the router");
        cluster_.Post(router::DrainWorker{cluster_.worker(slot)->incarnation(), rng_.OneIn(2)});
      }
      cluster_.schedule().After(rng_.Between(absl::Milliseconds(100), absl::Seconds(1)), [this, slot] {
        if (!cluster_.alive(slot) || !cluster_.worker(slot)->draining()) return;
        cluster_.ShutDown(slot);
        cluster_.schedule().After(absl::Milliseconds(60), [this, slot] { Restart(slot); });
      });
  }
}

void Faults::HarmWork(int slot) {
  switch (rng_.Below(3)) {
    case 0:
      Count("stuck in a step");
      return cluster_.worker(slot)->StickFor(rng_.Between(absl::Milliseconds(200), absl::Seconds(4)));
    case 1:
      Count("stood still");
      return cluster_.network().Freeze(Cluster::NodeOf(slot), rng_.Between(absl::Milliseconds(50), absl::Seconds(4)));
    default:
      Count("slowed down");
      return cluster_.worker(slot)->SlowDown(rng_.Between(2, 20));
  }
}

void Faults::HarmStream(int slot) {
  switch (rng_.Below(3)) {
    case 0:
      if (cluster_.CutWork(slot)) Count("work stream cut");
      return;
    case 1:
      if (cluster_.CutAnnounce(slot)) Count("announce stream cut");
      return;
    default: {
      const int other = AnySlot();
      if (other < 0 || !cluster_.alive(other)) return;
      if (cluster_.kv_links().Cut(cluster_.worker(slot)->incarnation(), cluster_.worker(other)->incarnation())) {
        Count("KV link cut");
      }
    }
  }
}

void Faults::HarmNetwork(int slot) {
  const Network::Node node = Cluster::NodeOf(slot);
  const int other = AnySlot();
  const absl::Duration time = rng_.Between(absl::Milliseconds(50), absl::Seconds(4));
  switch (rng_.Below(4)) {
    case 0:
      Count("router and worker partitioned");
      return cluster_.network().Partition(node, Cluster::kRouter, time);
    case 1:
      if (other < 0 || other == slot) return;
      Count("workers partitioned");
      return cluster_.network().Partition(node, Cluster::NodeOf(other), time);
    case 2:
      Count("slow link to the router");
      return cluster_.network().Slow(node, Cluster::kRouter, rng_.Between(5, 200), time);
    default:
      if (other < 0 || other == slot) return;
      Count("slow link between workers");
      return cluster_.network().Slow(node, Cluster::NodeOf(other), rng_.Between(5, 200), time);
  }
}

void Faults::End(const std::vector<WorkerModel>& good) {
  cluster_.network().Heal();
  for (int slot = 0; slot < cluster_.slots(); ++slot) {
    cluster_.set_model(slot, good[size_t(slot)]);
    if (ModelWorker* worker = cluster_.worker(slot); worker != nullptr) worker->SlowDown(1);
    // Whoever drains comes back as a new process.
    if (cluster_.alive(slot) && cluster_.worker(slot)->draining()) cluster_.Kill(slot, false);
    if (!cluster_.alive(slot)) cluster_.Start(slot);
  }
}

}  // namespace sluice::simulation
