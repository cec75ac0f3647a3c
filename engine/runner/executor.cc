#include "engine/runner/executor.h"

#include <glog/logging.h>

#include <span>
#include <utility>

namespace sluice::engine {

Executor::Executor(Decoder* decoder, kernels::KvPool* kv, int max_logits, DraftRule rule,
                   std::function<double()> seconds, kernels::Collective* collective)
    : decoder_(decoder),
      kv_(kv),
      rule_(rule),
      seconds_(std::move(seconds)),
      logits_(size_t(max_logits) * size_t(decoder->vocab())),
      maxima_(size_t(max_logits) * size_t(kernels::NumLogitBlocks(decoder->vocab()))) {
  if (collective != nullptr) others_.emplace(collective);
}

Executor::~Executor() {
  // Fails where one is lost: then they stop for that. One that stands still would be waited for.
  if (others_ && !failed_) (void)others_->SendStop();
}

absl::Status Executor::Compute(StepWork& step) {
  if (others_) {
    const bool own_pools = kv_->device() != nullptr;
    const absl::Status sent = others_->Send(
        step.inputs, own_pools ? std::span<const BlockCopy>(step.plan.copies) : std::span<const BlockCopy>(),
        step.after_layer != nullptr);
    if (!sent.ok()) return sent;
  }
  return decoder_->Forward(step.inputs.batch(), *kv_, logits_.data(), maxima_.data(), step.after_layer);
}

absl::Status Executor::Execute(StepWork& step) {
  for (const BlockCopy& copy : step.plan.copies) kv_->CopyBlock(copy.from, copy.to);
  for (const SampleTask& task : step.tasks) {
    if (task.unknown_row >= 0) step.inputs.tokens[size_t(task.unknown_row)] = task.states[0]->last_token;
  }
  const size_t vocab = size_t(decoder_->vocab()), blocks = size_t(kernels::NumLogitBlocks(decoder_->vocab()));
  CHECK_LE(step.inputs.logit_rows.size() * vocab, logits_.size());
  if (absl::Status status = Compute(step); !status.ok()) {
    failed_ = true;
    return status;
  }

  const double begin = seconds_ ? seconds_() : 0;
  size_t row = 0;
  for (const SampleTask& task : step.tasks) {
    const size_t rows = task.targets.size() + (task.samples ? 1 + task.drafts.size() : 0);
    step.results.push_back(SampleRows(task, std::span(logits_).subspan(row * vocab, rows * vocab), vocab, rule_,
                                      std::span(maxima_).subspan(row * blocks, rows * blocks)));
    row += rows;
  }
  if (seconds_) step.sample_seconds = seconds_() - begin;
  return absl::OkStatus();
}

}  // namespace sluice::engine
