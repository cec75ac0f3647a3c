// The command line of sluice_router.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/App.hpp"
#include "proto/discovery/registry_address.h"

namespace sluice::router {

struct Options {
  std::string model;
  std::string served_model_name;  // empty: the name in the file
  std::string host = "127.0.0.1";
  int grpc_port = 50051;
  std::string http_host;  // empty: host
  int http_port = 8000;   // -1: no HTTP
  std::string http_tls_cert;
  std::string http_tls_key;
  std::string api_keys;  // a file
  std::vector<std::string> cors_origins;
  std::string chat_template;  // a file; empty: the model's
  int headroom_tokens = 0;
  int queue_limit = 1024;
  int tenant_queue_limit = 0;
  std::vector<std::pair<std::string, double>> tenant_weights;
  std::string policy = "slo";
  int local_prefill_tokens = 0;
  bool fallback_both = true;
  int ttft_slo_ms = 0;
  int tpot_slo_ms = 0;
  int prefix_entries = 1 << 20;
  int max_moves = 4;
  int failover_wait_ms = 30000;
  int lease_ms = 10000;
  int heartbeat_ms = 1000;
  std::string cluster_key;  // file; empty: none
  std::string tls;          // folder; empty: plain connections
  std::string log_level = "info";
  discovery::RegistryAddress registry;
  std::string advertise;  // host that workers dial; empty: host
};

// A parser that fills `options`, which must outlive it.
std::unique_ptr<CLI::App> MakeParser(Options& options);

}  // namespace sluice::router
