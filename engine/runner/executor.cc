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
  if (others_) (void)others_->SendStop();  // fails where one is lost: then they stop for that
}

absl::Status Executor::Execute(StepWork& step) {
  for (const BlockCopy& copy : step.plan.copies) kv_->CopyBlock(copy.from, copy.to);
  for (const SampleTask& task : step.tasks) {
    if (task.unknown_row >= 0) step.inputs.tokens[size_t(task.unknown_row)] = task.states[0]->last_token;
  }
  const size_t vocab = size_t(decoder_->vocab()), blocks = size_t(kernels::NumLogitBlocks(decoder_->vocab()));
  CHECK_LE(step.inputs.logit_rows.size(), max_logits_);
  if (others_) {
    if (absl::Status sent = others_->Send(step.inputs); !sent.ok()) return sent;
  }
  kernels::StepBatch batch = step.inputs.batch();
  std::vector<bool> on_device(step.tasks.size(), false);
  if (device_) {
    device_->Clear();
    for (size_t i = 0; i < step.tasks.size(); ++i) on_device[i] = device_->AddTask(step.tasks[i], rule_);
    batch.sampling = &device_->batch();
  }
  if (absl::Status status = decoder_->Forward(batch, *kv_, logits_.get(), maxima_.get(), step.after_layer);
      !status.ok()) {
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
