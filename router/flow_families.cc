// What flowed between pairs of workers.
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/names.h"
#include "router/metric_families.h"

namespace sluice::router {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

std::string NameOf(const v1::WorkerStatus& worker) {
  return absl::StrCat(worker.host(), ":", worker.port());
}

void AddTo(v1::KvFlow& sum, const v1::KvFlow& flow) {
  if (!flow.channel().empty()) sum.set_channel(flow.channel());
  sum.set_bytes(sum.bytes() + flow.bytes());
  sum.set_pieces(sum.pieces() + flow.pieces());
  sum.set_transfers(sum.transfers() + flow.transfers());
  sum.set_failed_transfers(sum.failed_transfers() + flow.failed_transfers());
  sum.set_corrupt_pieces(sum.corrupt_pieces() + flow.corrupt_pieces());
  sum.set_void_pieces(sum.void_pieces() + flow.void_pieces());
  sum.set_epochs(sum.epochs() + flow.epochs());
  sum.set_aborts(sum.aborts() + flow.aborts());
  sum.set_stale_messages(sum.stale_messages() + flow.stale_messages());
  sum.set_busy_seconds(sum.busy_seconds() + flow.busy_seconds());
  sum.set_exposed_seconds(sum.exposed_seconds() + flow.exposed_seconds());
}

struct FlowMetric {
  const char* name;
  const char* help;
  double (*value)(const v1::KvFlow&);
};

// Of a worker and one of its peers.
constexpr FlowMetric kFlowMetrics[] = {
    {"sluice_kv_transfer_bytes_total", "KV bytes that landed with the right checksum",
     [](const v1::KvFlow& f) { return double(f.bytes()); }},
    {"sluice_kv_transfer_pieces_total", "KV pieces that landed with the right checksum",
     [](const v1::KvFlow& f) { return double(f.pieces()); }},
    {"sluice_kv_transfers_committed_total", "KV transfers that were committed",
     [](const v1::KvFlow& f) { return double(f.transfers()); }},
    {"sluice_kv_transfers_failed_total", "KV transfers that failed or were cancelled",
     [](const v1::KvFlow& f) { return double(f.failed_transfers()); }},
    {"sluice_kv_corrupt_pieces_total", "KV pieces with a wrong checksum",
     [](const v1::KvFlow& f) { return double(f.corrupt_pieces()); }},
    {"sluice_kv_void_pieces_total", "KV pieces that came after their request had ended",
     [](const v1::KvFlow& f) { return double(f.void_pieces()); }},
    {"sluice_kv_stale_messages_total", "Messages of an epoch or a lease that was over",
     [](const v1::KvFlow& f) { return double(f.stale_messages()); }},
    {"sluice_kv_pair_epochs_total", "How often the pair was made",
     [](const v1::KvFlow& f) { return double(f.epochs()); }},
    {"sluice_kv_pair_aborts_total", "How often the pair ended while it was up",
     [](const v1::KvFlow& f) { return double(f.aborts()); }},
    {"sluice_kv_transfer_busy_seconds_total", "Time in which KV was under way; bytes divided by it are the bandwidth",
     [](const v1::KvFlow& f) { return f.busy_seconds(); }},
    {"sluice_kv_transfer_exposed_seconds_total",
     "Of committed transfers: time from the end of the prompt until all of its KV had landed",
     [](const v1::KvFlow& f) { return f.exposed_seconds(); }},
};

}  // namespace

void AddFlowFamilies(const v1::ClusterState& state, MetricFamilies& families) {
  using Pair = std::pair<const v1::WorkerStatus*, std::string>;
  std::map<Pair, v1::KvFlow> flows;
  for (const v1::WorkerStatus& worker : state.workers()) {
    if (worker.state() == v1::WORKER_STATE_GONE) continue;
    for (const v1::KvFlow& flow : worker.kv_flows()) {
      AddTo(flows[{&worker, flow.peer().empty() ? "gone" : flow.peer()}], flow);
    }
  }
  const auto labels = [](const Pair& pair) {
    return MetricLabels{{"role", RoleName(pair.first->role())}, {"worker", NameOf(*pair.first)}, {"peer", pair.second}};
  };
  for (const FlowMetric& metric : kFlowMetrics) {
    MetricFamily& family = NewFamily(families, metric.name, metric.help, MetricType::Counter);
    for (const auto& [pair, flow] : flows) AddValue(family, labels(pair), metric.value(flow));
  }
  MetricFamily& up = NewFamily(families, "sluice_kv_pair_up", "1 while KV can flow", MetricType::Gauge);
  for (const auto& [pair, flow] : flows) AddValue(up, labels(pair), flow.channel().empty() ? 0 : 1);
}

}  // namespace sluice::router
