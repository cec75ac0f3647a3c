// The flags of `sluice bench`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "cli/bench/summary.h"

namespace sluice::cli::bench {

struct BenchOptions {
  std::string api = "grpc";  // grpc, completions, chat
  std::string router = "localhost:50051";
  std::string http = "localhost:8000";

  std::string rate = "1";  // requests per second, or inf
  double burstiness = 1;
  int max_concurrency = 0;  // 0: no limit
  int requests = 200;
  int warmup = 0;
  double timeout_s = 600;

  std::string input_tokens = "128", output_tokens = "32";
  int shared_prefix_tokens = 0, prefixes = 1;
  std::string trace;  // file; empty: random prompts
  int divide = 1;
  double speed = 1;
  int vocabulary = 0;  // 0: as the server says
  std::optional<uint64_t> seed;

  double temperature = 0;
  bool ignore_eos = true;
  int connections = 4;

  Slo slo;
  bool goodput_search = false;
  double goodput_share = 0.9, goodput_precision = 0.05;
  int goodput_tries = 24;

  std::string json, plot;  // files; empty: none
  bool quiet = false;      // no progress
};

// What flags cannot check alone; the message names the flag. `rate` gets the number of --rate.
absl::Status CheckTogether(const BenchOptions& options, double* rate);

// Adds the subcommand, which fills `options`.
void AddBench(CLI::App& app, BenchOptions* options);

}  // namespace sluice::cli::bench
