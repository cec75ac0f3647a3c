#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/model/decoder.h"
#include "engine/runner/runner.h"

namespace sluice::engine {
namespace {

absl::Status CheckOptions(const EngineOptions& o, const ModelConfig& config) {
  const auto positive = [](absl::string_view name, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be positive"));
  };
  if (o.block_size < 1) return positive("block_size", o.block_size);
  if (o.num_blocks < 0) return positive("num_blocks", o.num_blocks);
  if (o.num_blocks == 0 && o.max_kv_bytes < 1) return positive("max_kv_bytes", o.max_kv_bytes);
  if (o.scheduler.max_step_tokens < 1) return positive("max_step_tokens", o.scheduler.max_step_tokens);
  if (o.scheduler.max_step_seqs < 1) return positive("max_step_seqs", o.scheduler.max_step_seqs);
  if (o.max_context < 0) return positive("max_context", o.max_context);
  if (o.max_context > config.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("max_context is ", o.max_context, "; the model was trained for ",
                                                   config.context_length, " positions"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> NumBlocks(const EngineOptions& o, const kernels::KvLayout& layout, int max_context) {
  if (o.num_blocks > 0) return o.num_blocks;
  const int64_t block_bytes = int64_t(layout.block_bytes_all_layers());
  const int64_t blocks = std::min<int64_t>(o.max_kv_bytes / block_bytes, std::numeric_limits<int32_t>::max());
  const int needed = kernels::BlocksFor(max_context, layout.block_size);
  if (blocks < needed) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "max_kv_bytes is ", o.max_kv_bytes, "; one context of ", max_context, " tokens needs ", needed * block_bytes,
        " bytes (", needed, " blocks of ", block_bytes, "): raise max_kv_bytes or lower max_context"));
  }
  return int(blocks);
}

}  // namespace

struct Engine::Impl {
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<kernels::KvPool> kv;
  std::unique_ptr<SequenceTable> sequences;
  std::unique_ptr<Runner> runner;
  uint64_t steps = 0;
  std::vector<SequenceProgress> progress;  // of the last step
};

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const ModelFile& file, const kernels::Backend& backend,
                                                       const EngineOptions& options) {
  const ModelConfig& config = file.config();
  if (absl::Status status = CheckOptions(options, config); !status.ok()) return status;
  const int max_context = options.max_context > 0 ? options.max_context : config.context_length;
  const SchedulerLimits& scheduler = options.scheduler;

  auto impl = std::make_unique<Impl>();
  absl::StatusOr<std::unique_ptr<Decoder>> decoder =
      Decoder::Create(file, backend, {scheduler.max_step_tokens, scheduler.max_step_seqs, max_context});
  if (!decoder.ok()) return decoder.status();
  impl->decoder = *std::move(decoder);

  const kernels::KvLayout layout = impl->decoder->kv_layout(options.block_size);
  const absl::StatusOr<int> num_blocks = NumBlocks(options, layout, max_context);
  if (!num_blocks.ok()) return num_blocks.status();
  absl::StatusOr<std::unique_ptr<kernels::KvPool>> kv = backend.NewKvPool(layout, *num_blocks);
  if (!kv.ok()) return kv.status();
  impl->kv = *std::move(kv);

  impl->sequences = std::make_unique<SequenceTable>(
      SequenceLimits{options.block_size, *num_blocks, max_context, impl->decoder->vocab()}, scheduler);
  impl->runner = std::make_unique<Runner>(impl->decoder.get(), impl->kv.get(), scheduler.max_step_seqs, max_context);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::Status Engine::Add(EngineRequest request) {
  return impl_->sequences->Add(std::move(request));
}

bool Engine::Cancel(uint64_t id) {
  return impl_->sequences->Remove(id);
}

bool Engine::has_work() const {
  return !impl_->sequences->scheduler().empty();
}

bool Engine::Park(uint64_t id) {
  return impl_->sequences->Park(id);
}

absl::Status Engine::Activate(uint64_t id, int32_t first_token) {
  return impl_->sequences->Activate(id, first_token);
}

std::vector<int32_t> Engine::BlocksOf(uint64_t id) const {
  const Sequence* sequence = impl_->sequences->Find(id);
  return sequence == nullptr ? std::vector<int32_t>() : sequence->blocks;
}

const std::vector<SequenceProgress>& Engine::progress() const {
  return impl_->progress;
}

void* Engine::kv_layer_data(int layer) {
  return impl_->kv->layer_data(layer);
}

absl::StatusOr<std::vector<TokenOutput>> Engine::Step() {
  impl_->progress.clear();
  const StepPlan plan = impl_->sequences->scheduler().Plan();
  if (plan.empty()) return std::vector<TokenOutput>();
  absl::StatusOr<std::vector<TokenOutput>> outputs = impl_->runner->Run(plan);
  if (!outputs.ok()) return outputs;
  ++impl_->steps;
  for (const Chunk& chunk : plan) impl_->progress.push_back({chunk.sequence->id, chunk.sequence->computed});
  for (const TokenOutput& out : *outputs) impl_->sequences->Settle(out.id, out.finish != FinishReason::kNone);
  return outputs;
}

EngineStats Engine::stats() const {
  const Scheduler& scheduler = impl_->sequences->scheduler();
  const BlockPool& blocks = impl_->sequences->blocks();
  return {.blocks_total = blocks.total(),
          .blocks_free = blocks.free(),
          .running = scheduler.running(),
          .waiting = scheduler.waiting(),
          .waiting_tokens = scheduler.waiting_tokens(),
          .steps = impl_->steps};
}

int Engine::context_length() const {
  return impl_->sequences->limits().max_context;
}

const kernels::KvLayout& Engine::kv_layout() const {
  return impl_->kv->layout();
}

}  // namespace sluice::engine
