// Answers that a worker computes from the prompt to the end by itself: Reserve with compute_prompt. A part of a role,
// which hands it what concerns its requests. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "proto/worker.pb.h"
#include "worker/engine_port.h"
#include "worker/request_table.h"

namespace sluice::worker {

class WholeAnswers {
 public:
  // Both outlive it.
  WholeAnswers(EnginePort& engine, RequestTable& requests) : engine_(engine), requests_(requests) {}

  // As Role::Admit.
  std::optional<v1::ErrorInfo> Admit(uint64_t id, const v1::Reserve& reserve, engine::EngineRequest request,
                                     v1::LeaseGranted& granted);

  bool Has(uint64_t id) const { return ids_.contains(id); }

  // REQUIRES of both: Has
  void OnOutput(const engine::TokenOutput& output);
  void Stop(uint64_t id);  // its blocks are free

 private:
  EnginePort& engine_;
  RequestTable& requests_;
  std::unordered_set<uint64_t> ids_;
};

}  // namespace sluice::worker
