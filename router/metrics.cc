#include "router/metrics.h"

#include <prometheus/text_serializer.h>

#include "proto/names.h"
#include "router/metric_families.h"

namespace sluice::router {
namespace {

using prometheus::MetricType;

void AddRouter(const MetricsInput& input, MetricFamilies& families) {
  AddValue(NewFamily(families, "sluice_router_info", "1, with the router's version and model", MetricType::Gauge),
           {{"version", input.state.router_version()}, {"model", input.state.model()}}, 1);
  AddValue(NewFamily(families, "sluice_num_requests_waiting", "Requests in the router's queue", MetricType::Gauge), {},
           input.state.queued());
  AddValue(NewFamily(families, "sluice_num_requests_running", "Requests at the workers", MetricType::Gauge), {},
           input.state.running());
  AddValue(NewFamily(families, "sluice_request_moves_total",
                     "How often requests went on at other workers because theirs failed", MetricType::Counter),
           {}, double(input.counters.moves));
  prometheus::MetricFamily& lost =
      NewFamily(families, "sluice_workers_lost_total", "Workers that ended without a goodbye", MetricType::Counter);
  for (const v1::Role role : {v1::ROLE_PREFILL, v1::ROLE_DECODE, v1::ROLE_BOTH}) {
    AddValue(lost, {{"role", RoleName(role)}}, double(input.counters.workers_lost[size_t(role)]));
  }
}

}  // namespace

std::string MetricsText(const MetricsInput& input) {
  MetricFamilies families;
  AddRouter(input, families);
  AddRequestFamilies(input.requests, families);
  AddWorkerFamilies(input.state, families);
  AddFlowFamilies(input.state, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace sluice::router
