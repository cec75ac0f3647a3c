// What a role decides; everything that roles have in common is WorkerCore's and RequestTable's. Composition: a worker
// core is handed the one role it serves.
//
// All calls come on the engine thread. A role frees a request's blocks only when nobody else uses them any more; the
// table knows the request exactly as long as the role holds anything of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "proto/worker.pb.h"

namespace sluice::worker {

class Role {
 public:
  virtual ~Role() = default;

  // The request `id` is in the table, with all that roles have in common checked and `request` taken from the message
  // (its id is `id`). An error refuses it: the role then holds nothing of it. No events may be added here: the answer
  // comes first.
  virtual std::optional<v1::ErrorInfo> Admit(uint64_t id, const v1::Reserve& reserve, engine::EngineRequest request,
                                             v1::LeaseGranted& granted) = 0;
  virtual std::optional<v1::ErrorInfo> Admit(uint64_t id, const v1::Prefill& prefill,
                                             engine::EngineRequest request) = 0;

  // A step that is about to be executed; the role may set its after_layer.
  virtual void OnPlanned(engine::StepWork&) {}

  // What one engine step brought; `now` is its end.
  virtual void OnStep(const std::vector<engine::TokenOutput>& outputs,
                      const std::vector<engine::SequenceProgress>& progress, absl::Time now) = 0;

  // The events of the last OnStep are on their way. What the step set in motion elsewhere starts here: a transfer that
  // began earlier would compete with a client's first token.
  virtual void AfterStep() {}

  // The request ends for this reason, whatever it is doing. True: its blocks are free and the role has forgotten it.
  // False: they will be, and the role calls RequestTable::Ended then (never from inside this call).
  virtual bool Stop(uint64_t id, const v1::ErrorInfo& why) = 0;
};

}  // namespace sluice::worker
