#include "engine/runner/executor.h"

#include <glog/logging.h>

#include <span>
#include <utility>
#include <vector>

namespace sluice::engine {

Executor::Executor(Decoder* decoder, kernels::KvPool* kv, int max_logits, DraftRule rule,
                   std::function<double()> seconds, kernels::Collective* collective, bool device_sampling)
    : decoder_(decoder),
      kv_(kv),
      rule_(rule),
      seconds_(std::move(seconds)),
      max_logits_(size_t(max_logits)),
      logits_(new float[size_t(max_logits) * size_t(decoder->vocab())]),
      maxima_(new float[size_t(max_logits) * size_t(kernels::NumLogitBlocks(decoder->vocab()))]) {
  if (collective != nullptr) others_.emplace(collective);
  if (device_sampling && decoder->sample_limits().rows > 0) device_.emplace(decoder->sample_limits(), decoder->vocab());
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
  kernels::StepBatch batch = step.inputs.batch();
  if (device_) batch.sampling = &device_->batch();
  return decoder_->Forward(batch, *kv_, logits_.get(), maxima_.get(), step.after_layer);
}

std::vector<bool> Executor::PlanSampling(const StepWork& step) {
  std::vector<bool> on_device(step.tasks.size(), false);
  if (!device_) return on_device;
  device_->Clear();
  for (size_t i = 0; i < step.tasks.size(); ++i) on_device[i] = device_->AddTask(step.tasks[i], rule_);
  return on_device;
}

absl::Status Executor::Execute(StepWork& step) {
  for (const BlockCopy& copy : step.plan.copies) {
    if (absl::Status status = kv_->CopyBlock(copy.from, copy.to); !status.ok()) {
      failed_ = true;
      return status;
    }
  }
  for (const SampleTask& task : step.tasks) {
    if (task.unknown_row >= 0) step.inputs.tokens[size_t(task.unknown_row)] = task.states[0]->last_token;
  }
  const size_t vocab = size_t(decoder_->vocab()), blocks = size_t(kernels::NumLogitBlocks(decoder_->vocab()));
  CHECK_LE(step.inputs.logit_rows.size(), max_logits_);
  const std::vector<bool> on_device = PlanSampling(step);
  if (absl::Status status = Compute(step); !status.ok()) {
    failed_ = true;
    return status;
  }

  const double begin = seconds_ ? seconds_() : 0;
  size_t row = 0;
  for (size_t i = 0; i < step.tasks.size(); ++i) {
    const SampleTask& task = step.tasks[i];
    const size_t rows = NumLogits(task);
    step.results.push_back(on_device[i] ? device_->TakenTask(task, row)
                                        : SampleRows(task, std::span(logits_.get() + row * vocab, rows * vocab), vocab,
                                                     rule_, std::span(maxima_.get() + row * blocks, rows * blocks)));
    row += rows;
  }
  if (seconds_) step.sample_seconds = seconds_() - begin;
  step.bytes_to_host = decoder_->bytes_to_host();
  return absl::OkStatus();
}

}  // namespace sluice::engine
