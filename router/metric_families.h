// The families of /metrics, by what they are about; metrics.h puts them together. Pure.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "router/metrics.h"

namespace sluice::router {

using MetricFamilies = std::vector<prometheus::MetricFamily>;
using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

inline prometheus::MetricFamily& NewFamily(MetricFamilies& families, const char* name, const char* help,
                                           prometheus::MetricType type) {
  prometheus::MetricFamily& family = families.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

// Of a counter or a gauge.
inline void AddValue(prometheus::MetricFamily& family, MetricLabels labels, double value) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  (family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

void AddRequestFamilies(const RequestMetrics& requests, MetricFamilies& families);
void AddWorkerFamilies(const v1::ClusterState& state, MetricFamilies& families);
void AddFlowFamilies(const v1::ClusterState& state, MetricFamilies& families);

}  // namespace sluice::router
