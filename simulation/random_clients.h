// Clients of every kind, from a seed: what they ask and what they do meanwhile. They cancel, set deadlines, find stop
// strings; prompts share beginnings.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "simulation/client.h"
#include "simulation/cluster.h"

namespace sluice::simulation {

struct RandomClientsOptions {
  absl::Duration every = absl::Milliseconds(30);  // between two requests, on average
  int most_prompt = 160;
  int most_answer = 40;
  int most_choices = 4;
};

class RandomClients {
 public:
  using Violate = std::function<void(std::string)>;
  RandomClients(const RandomClientsOptions& options, Cluster& cluster, Rng rng, Violate violate)
      : options_(options), cluster_(cluster), rng_(rng), violate_(std::move(violate)) {}

  void Start();
  void NoMore() { no_more_ = true; }
  void Saw(const router::Action& action);

  bool all_ended() const { return ended_ == int64_t(clients_.size()); }
  const std::map<uint64_t, std::unique_ptr<Client>>& clients() const { return clients_; }

  struct Totals {
    int64_t cancels = 0;
    int64_t stops = 0;  // strings found
    int64_t deadlines = 0;
    int64_t tokens = 0;
    int64_t several = 0;  // requests for more than one answer
  };
  const Totals& totals() const { return totals_; }

 private:
  router::Submit Ask();
  void SubmitNext();

  const RandomClientsOptions options_;
  Cluster& cluster_;
  Rng rng_;
  const Violate violate_;
  std::map<uint64_t, std::unique_ptr<Client>> clients_;  // by call
  std::map<uint64_t, std::pair<int, int>> stops_;        // by call: in this choice, after so many tokens
  uint64_t next_call_ = 1;
  int64_t ended_ = 0;
  bool no_more_ = false;
  Totals totals_;
};

}  // namespace sluice::simulation
