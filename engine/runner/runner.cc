#include "engine/runner/runner.h"

#include <glog/logging.h>

namespace sluice::engine {

Runner::Runner(Decoder* decoder, kernels::KvPool* kv, int max_logits, int max_context)
    : decoder_(decoder),
      kv_(kv),
      max_context_(max_context),
      inputs_(kv->layout().block_size),
      logits_(size_t(max_logits) * decoder->vocab()) {}

absl::StatusOr<std::vector<TokenOutput>> Runner::Run(const StepPlan& plan) {
  const kernels::StepBatch batch = inputs_.Fill(plan);
  CHECK_LE(batch.logit_rows.size() * decoder_->vocab(), logits_.size());
  if (absl::Status status = decoder_->Forward(batch, *kv_, logits_.data()); !status.ok()) return status;
  return Commit(plan, logits_, decoder_->vocab(), max_context_);
}

}  // namespace sluice::engine
