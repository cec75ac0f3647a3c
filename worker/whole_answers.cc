#include "worker/whole_answers.h"

#include <algorithm>
#include <utility>

#include "worker/error_info.h"

namespace sluice::worker {

std::optional<v1::ErrorInfo> WholeAnswers::Admit(uint64_t id, const v1::Reserve& reserve, engine::EngineRequest request,
                                                 v1::LeaseGranted& granted) {
  request.headroom_tokens = std::max(reserve.headroom_tokens(), 0);
  if (absl::Status added = engine_.Add(std::move(request)); !added.ok()) return ErrorOfRefusedAdd(added);
  granted.add_blocks()->set_num_blocks(int32_t(engine_.BlocksOf(id).size()));
  granted.mutable_blocks(0)->set_state_slot(-1);
  ids_.insert(id);
  return std::nullopt;
}

void WholeAnswers::OnOutput(const engine::TokenOutput& output) {
  requests_.AddToken(output);
  if (output.finish == engine::FinishReason::kNone) return;
  requests_.AddFinished(output.id, output.choice, output.finish, output.cached_tokens, output.last);
  if (!output.last) return;
  ids_.erase(output.id);
  requests_.EndNow(output.id, std::nullopt);
}

void WholeAnswers::Stop(uint64_t id) {
  engine_.Cancel(id);
  ids_.erase(id);
}

}  // namespace sluice::worker
