// The simplest role, for tests of what all roles share: it computes prompts itself and streams the tokens.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "worker/engine_port.h"
#include "worker/error_info.h"
#include "worker/request_table.h"
#include "worker/role.h"

namespace sluice::worker {

class ComputingRole final : public Role {
 public:
  ComputingRole(EnginePort& engine, RequestTable& requests) : engine_(engine), requests_(requests) {}

  std::optional<v1::ErrorInfo> Admit(uint64_t, const v1::Reserve&, engine::EngineRequest request,
                                     v1::LeaseGranted&) override {
    const absl::Status added = engine_.Add(std::move(request));
    return added.ok() ? std::nullopt : std::make_optional(ErrorOfRefusedAdd(added));
  }

  std::optional<v1::ErrorInfo> Admit(uint64_t, const v1::Prefill&, engine::EngineRequest) override {
    return MakeError(v1::INCOMPATIBLE, "no prefill here");
  }

  void OnStep(const std::vector<engine::TokenOutput>& outputs, const std::vector<engine::SequenceProgress>&,
              absl::Time) override {
    for (const engine::TokenOutput& output : outputs) {
      requests_.AddToken(output);
      if (output.finish == engine::FinishReason::kNone) continue;
      requests_.AddFinished(output.id, output.choice, output.finish, output.cached_tokens, output.last);
      requests_.EndNow(output.id, std::nullopt);
    }
  }

  bool Stop(uint64_t id, const v1::ErrorInfo&) override {
    // A test holds requests back to see what their end waits for.
    if (hold) return false;
    engine_.Cancel(id);
    return true;
  }

  void LetGo(uint64_t id) {
    engine_.Cancel(id);
    requests_.Ended(id);
  }

  bool hold = false;

 private:
  EnginePort& engine_;
  RequestTable& requests_;
};

}  // namespace sluice::worker
