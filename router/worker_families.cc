// The workers as they report themselves, and how many there are.
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/names.h"
#include "router/metric_families.h"

namespace sluice::router {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Worker = v1::WorkerStatus;

struct WorkerMetric {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const Worker&);
};

constexpr MetricType kGauge = MetricType::Gauge;
constexpr MetricType kCounter = MetricType::Counter;

double Usage(const Worker& w) {
  return w.blocks_total() > 0 ? 1 - double(w.blocks_free()) / double(w.blocks_total()) : 0;
}

constexpr WorkerMetric kWorkerMetrics[] = {
    {"sluice_kv_blocks", "KV blocks of a worker", kGauge, [](const Worker& w) { return double(w.blocks_total()); }},
    {"sluice_kv_blocks_free", "KV blocks that are free or may be evicted", kGauge,
     [](const Worker& w) { return double(w.blocks_free()); }},
    {"sluice_kv_blocks_cached", "KV blocks that a prefix cache holds", kGauge,
     [](const Worker& w) { return double(w.engine().cached_blocks()); }},
    {"sluice_kv_cache_usage_perc", "Share of the KV blocks that is in use; 1 is all", kGauge, Usage},
    {"sluice_sequences_running", "Sequences that a worker computes", kGauge,
     [](const Worker& w) { return double(w.running()); }},
    {"sluice_sequences_waiting", "Sequences that wait at a worker", kGauge,
     [](const Worker& w) { return double(w.waiting()); }},
    {"sluice_worker_requests", "Requests of this router at a worker", kGauge,
     [](const Worker& w) { return double(w.requests()); }},
    {"sluice_worker_step_seconds", "Duration of a worker's step, a moving average", kGauge,
     [](const Worker& w) { return w.step_ms() / 1000; }},
    {"sluice_worker_prompt_tokens_per_second",
     "How fast a worker computes prompts, as the router has learned; 0: unknown", kGauge,
     [](const Worker& w) { return w.prompt_tokens_per_s(); }},
    {"sluice_worker_steps_total", "Steps of a worker's engine", kCounter,
     [](const Worker& w) { return double(w.engine().steps()); }},
    {"sluice_worker_batch_rows_total", "Rows of all steps; divided by the steps they are the rows of a batch", kCounter,
     [](const Worker& w) { return double(w.engine().rows()); }},
    {"sluice_worker_steps_ahead_total", "Steps that were planned while the one before was under way", kCounter,
     [](const Worker& w) { return double(w.engine().steps_ahead()); }},
    {"sluice_worker_plan_seconds_total", "Time in planning steps", kCounter,
     [](const Worker& w) { return w.engine().plan_seconds(); }},
    {"sluice_worker_execute_seconds_total", "Time in computing steps, sampling included", kCounter,
     [](const Worker& w) { return w.engine().execute_seconds(); }},
    {"sluice_worker_sample_seconds_total", "Time in sampling", kCounter,
     [](const Worker& w) { return w.engine().sample_seconds(); }},
    {"sluice_worker_commit_seconds_total", "Time in committing steps", kCounter,
     [](const Worker& w) { return w.engine().commit_seconds(); }},
    {"sluice_worker_bytes_to_host_total", "Results that a device brought to its host", kCounter,
     [](const Worker& w) { return double(w.engine().bytes_to_host()); }},
    {"sluice_num_preemptions_total", "Sequences that lost their blocks to others and were computed again", kCounter,
     [](const Worker& w) { return double(w.engine().preemptions()); }},
    {"sluice_block_copies_total", "KV blocks that were copied before a write", kCounter,
     [](const Worker& w) { return double(w.engine().block_copies()); }},
    {"sluice_evicted_blocks_total", "KV blocks that left a prefix cache for others", kCounter,
     [](const Worker& w) { return double(w.engine().evicted_blocks()); }},
    {"sluice_prefix_cache_queries_total", "Tokens of prompts that were looked up in a prefix cache", kCounter,
     [](const Worker& w) { return double(w.engine().looked_up_tokens()); }},
    {"sluice_prefix_cache_hits_total", "Tokens of prompts that were found there", kCounter,
     [](const Worker& w) { return double(w.engine().hit_tokens()); }},
    {"sluice_spec_decode_num_draft_tokens_total", "Tokens that were drafted", kCounter,
     [](const Worker& w) { return double(w.engine().drafted_tokens()); }},
    {"sluice_spec_decode_num_accepted_tokens_total", "Drafted tokens that held", kCounter,
     [](const Worker& w) { return double(w.engine().accepted_tokens()); }},
};

std::string NameOf(const Worker& worker) {
  return absl::StrCat(worker.host(), ":", worker.port());
}

// All of them, always: an alert can tell none from unknown.
void AddPools(const v1::ClusterState& state, MetricFamilies& families) {
  MetricFamily& family = NewFamily(families, "sluice_workers", "Workers by role and state", kGauge);
  for (const v1::Role role : {v1::ROLE_PREFILL, v1::ROLE_DECODE, v1::ROLE_BOTH}) {
    for (const v1::WorkerState its :
         {v1::WORKER_STATE_ACTIVE, v1::WORKER_STATE_SUSPECT, v1::WORKER_STATE_DRAINING, v1::WORKER_STATE_GONE}) {
      int count = 0;
      for (const Worker& worker : state.workers()) count += worker.role() == role && worker.state() == its;
      AddValue(family, {{"role", RoleName(role)}, {"state", WorkerStateName(its)}}, count);
    }
  }
}

void AddStates(const v1::ClusterState& state, MetricFamilies& families) {
  MetricFamily& family = NewFamily(families, "sluice_worker_up", "1 for each worker, with its state", kGauge);
  std::set<std::pair<std::string, v1::WorkerState>> seen;  // lives of one address that are gone are one
  for (const Worker& worker : state.workers()) {
    if (!seen.emplace(NameOf(worker), worker.state()).second) continue;
    AddValue(
        family,
        {{"role", RoleName(worker.role())}, {"worker", NameOf(worker)}, {"state", WorkerStateName(worker.state())}}, 1);
  }
}

}  // namespace

void AddWorkerFamilies(const v1::ClusterState& state, MetricFamilies& families) {
  AddPools(state, families);
  AddStates(state, families);
  for (const WorkerMetric& metric : kWorkerMetrics) {
    MetricFamily& family = NewFamily(families, metric.name, metric.help, metric.type);
    for (const Worker& worker : state.workers()) {
      // Its address may have a new one already.
      if (worker.state() == v1::WORKER_STATE_GONE) continue;
      AddValue(family, {{"role", RoleName(worker.role())}, {"worker", NameOf(worker)}}, metric.value(worker));
    }
  }
}

}  // namespace sluice::router
