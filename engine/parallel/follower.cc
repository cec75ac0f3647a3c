#include "engine/parallel/follower.h"

#include <utility>
#include <vector>

#include "engine/engine_shape.h"
#include "engine/parallel/step_broadcast.h"

namespace sluice::engine {

absl::StatusOr<std::unique_ptr<Follower>> Follower::Create(const ModelFile& file, const kernels::Backend& backend,
                                                           const EngineOptions& options,
                                                           kernels::Collective* collective, std::byte* kv_memory) {
  EngineOptions own = options;
  own.collective = collective;
  absl::StatusOr<EngineShape> shape = ShapeOf(file.config(), backend, own);
  if (!shape.ok()) return shape.status();
  auto decoder = Decoder::Create(file, backend, shape->limits, options.packed_folder,
                                 {collective->rank(), collective->size(), collective});
  if (!decoder.ok()) return decoder.status();
  if (absl::Status sized = SizePool(backend, own, *shape); !sized.ok()) return sized;
  auto kv = backend.NewKvPool(shape->pool, shape->num_blocks, kv_memory);
  if (!kv.ok()) return kv.status();
  return std::unique_ptr<Follower>(
      new Follower(collective, *std::move(decoder), *std::move(kv), shape->limits.max_step_logits));
}

absl::Status Follower::Run() {
  StepBroadcast steps(collective_);
  const size_t vocab = size_t(decoder_->vocab());
  // Only this rank's columns are ever touched.
  std::vector<float> maxima(size_t(max_logits_) * size_t(kernels::NumLogitBlocks(int64_t(vocab))));
  std::unique_ptr<float[]> logits(new float[size_t(max_logits_) * vocab]);  // not cleared: pages come with their use
  for (;;) {
    const auto step = steps.Receive();
    if (!step.ok()) return step.status();
    if (!step->has_value()) return absl::OkStatus();
    for (const BlockCopy& copy : (*step)->copies) {
      if (absl::Status copied = kv_->CopyBlock(copy.from, copy.to); !copied.ok()) return copied;
    }
    const absl::Status done =
        decoder_->Forward((*step)->inputs.batch(), *kv_, logits.get(), maxima.data(), nullptr, !(*step)->by_layer);
    if (!done.ok()) return done;
  }
}

}  // namespace sluice::engine
