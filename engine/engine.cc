#include "engine/engine.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/chunk_pace.h"
#include "engine/engine_shape.h"
#include "engine/model/decoder.h"
#include "engine/runner/executor.h"
#include "engine/speculation/row_cost.h"

namespace sluice::engine {
namespace {

constexpr int kFirstChunkTokens = 64;  // beside decode rows, until steps were seen
constexpr double kFirstRowCost = 0.3;  // until steps of several sizes were seen

bool IsDecodeRow(const Chunk& c) {
  return c.count == 1 && c.samples;
}

// Rows of prompts share their reading of the KV: a step with chunks says nothing of what a draft costs.
bool OnlyDecodeRows(const StepPlan& plan) {
  return std::all_of(plan.chunks.begin(), plan.chunks.end(), IsDecodeRow);
}

}  // namespace

struct Engine::Impl {
  double Now() const { return seconds ? seconds() : 0; }
  bool learns_row_cost() const { return seconds && drafts; }

  std::unique_ptr<Decoder> decoder;
  kernels::KvLayout layout;  // of all ranks
  std::unique_ptr<kernels::KvPool> kv;
  std::unique_ptr<SequenceTable> sequences;
  std::unique_ptr<Executor> executor;
  std::function<double()> seconds;
  int max_step_tokens = 0;
  bool drafts = false;
  RowCost row_cost{kFirstRowCost};
  std::optional<ChunkPace> pace;           // where steps have a target
  uint64_t begun = 0, committed = 0;       // numbers of steps
  int64_t unasked_bytes_to_host = 0;       // that the profile brought
  std::vector<SequenceProgress> progress;  // of the last step
  EngineStats counts;
};

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const ModelFile& file, const kernels::Backend& backend,
                                                       const EngineOptions& options) {
  const SchedulerLimits& scheduler = options.scheduler;
  absl::StatusOr<EngineShape> shape = ShapeOf(file.config(), backend, options);
  if (!shape.ok()) return shape.status();

  auto impl = std::make_unique<Impl>();
  absl::StatusOr<std::unique_ptr<Decoder>> decoder =
      Decoder::Create(file, backend, shape->limits, options.packed_folder,
                      {0, options.collective != nullptr ? options.collective->size() : 1, options.collective});
  if (!decoder.ok()) return decoder.status();
  impl->decoder = *std::move(decoder);
  if (absl::Status sized = SizePool(backend, options, *shape); !sized.ok()) return sized;
  absl::StatusOr<std::unique_ptr<kernels::KvPool>> kv =
      backend.NewKvPool(shape->pool, shape->num_blocks, options.kv_memory);
  if (!kv.ok()) return kv.status();
  impl->layout = shape->layout;
  impl->kv = *std::move(kv);

  SequenceLimits limits{.block_size = options.block_size,
                        .num_blocks = shape->num_blocks,
                        .max_context = shape->limits.max_context,
                        .vocab = impl->decoder->vocab(),
                        .prefix_caching = options.prefix_caching,
                        .model_hash = options.model_hash,
                        .numerics = std::string(backend.numerics_id())};
  impl->sequences = std::make_unique<SequenceTable>(std::move(limits), scheduler, options.new_drafter);
  impl->executor =
      std::make_unique<Executor>(impl->decoder.get(), impl->kv.get(), shape->limits.max_step_logits, options.draft_rule,
                                 options.seconds, options.collective, options.device_sampling);
  impl->seconds = options.seconds;
  impl->max_step_tokens = scheduler.max_step_tokens;
  if (options.step_target_seconds > 0 && options.seconds)
    impl->pace.emplace(options.step_target_seconds, kFirstChunkTokens);
  impl->drafts = options.new_drafter != nullptr && scheduler.max_drafts > 0;
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<EngineProfile> Engine::Profile(double seconds) {
  CHECK(impl_->begun == 0 && impl_->sequences->empty());
  if (!impl_->seconds) return EngineProfile{};
  const SequenceLimits& limits = impl_->sequences->limits();
  return MeasureProfile(
      {.block_size = limits.block_size,
       .num_blocks = limits.num_blocks,
       .max_context = limits.max_context,
       .max_step_tokens = impl_->max_step_tokens,
       .vocab = limits.vocab,
       .seconds = seconds},
      [this](StepWork& step) {
        absl::Status status = impl_->executor->Execute(step);
        impl_->unasked_bytes_to_host = step.bytes_to_host;
        return status;
      },
      impl_->seconds);
}

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

absl::Status Engine::Activate(uint64_t id, std::span<const FirstToken> firsts) {
  return impl_->sequences->Activate(id, firsts);
}

absl::Status Engine::Activate(uint64_t id, int32_t first_token) {
  const Sequence* sequence = impl_->sequences->Find(id);
  const FirstToken first{sequence == nullptr ? 0 : sequence->choice, first_token};
  return impl_->sequences->Activate(id, {&first, 1});
}

int Engine::CachedTokensOf(uint64_t id) const {
  const Sequence* sequence = impl_->sequences->Find(id);
  return sequence == nullptr ? 0 : sequence->hit_tokens;
}

const PrefixCache& Engine::prefix_cache() const {
  return impl_->sequences->kv().cache();
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

kernels::DeviceKv* Engine::kv_device() {
  return impl_->kv->device();
}

int Engine::steps_under_way() const {
  return int(impl_->begun - impl_->committed);
}

std::unique_ptr<StepWork> Engine::Begin() {
  CHECK_LT(steps_under_way(), kMaxStepsUnderWay);
  const double begin = impl_->Now();
  Scheduler& scheduler = impl_->sequences->scheduler();
  if (impl_->learns_row_cost()) {
    impl_->counts.draft_row_cost = impl_->row_cost.Share(std::max(scheduler.running(), 1));
    scheduler.set_draft_row_cost(impl_->counts.draft_row_cost);
  }
  if (impl_->pace) {
    impl_->counts.chunk_tokens_beside_decode = impl_->pace->Tokens(std::max(scheduler.running(), 1));
    scheduler.set_chunk_tokens_beside_decode(impl_->counts.chunk_tokens_beside_decode);
  }
  StepPlan plan = scheduler.Plan();
  std::unique_ptr<StepWork> step;
  if (!plan.empty()) {
    step = std::make_unique<StepWork>(MakeStep(++impl_->begun, std::move(plan), impl_->sequences->limits().block_size));
    impl_->sequences->kv().StepBegun(step->number);
    if (steps_under_way() > 1) ++impl_->counts.steps_ahead;
  }
  impl_->counts.plan_seconds += impl_->Now() - begin;
  return step;
}

absl::Status Engine::Execute(StepWork& step) {
  const double begin = impl_->Now();
  absl::Status status = impl_->executor->Execute(step);
  step.execute_seconds = impl_->Now() - begin;
  return status;
}

std::vector<TokenOutput> Engine::Commit(std::unique_ptr<StepWork> step) {
  CHECK_EQ(step->number, impl_->committed + 1);
  const double begin = impl_->Now();
  if (impl_->learns_row_cost() && OnlyDecodeRows(step->plan)) {
    impl_->row_cost.Report(int(step->inputs.tokens.size()), step->execute_seconds);
  }
  if (impl_->pace) {
    int decode_rows = 0, chunk_tokens = 0;
    for (const Chunk& c : step->plan.chunks) (IsDecodeRow(c) ? decode_rows : chunk_tokens) += c.count;
    impl_->pace->Report(decode_rows, chunk_tokens, step->execute_seconds);
  }
  StepOutput out = engine::Commit(*step, *impl_->sequences);
  impl_->committed = step->number;
  impl_->progress = std::move(out.progress);
  EngineStats& counts = impl_->counts;
  ++counts.steps;
  counts.rows += step->inputs.tokens.size();
  counts.accepted_drafts += out.accepted_drafts;
  counts.execute_seconds += step->execute_seconds;
  counts.sample_seconds += step->sample_seconds;
  counts.bytes_to_host = step->bytes_to_host - impl_->unasked_bytes_to_host;
  counts.commit_seconds += impl_->Now() - begin;
  return std::move(out.tokens);
}

absl::StatusOr<std::vector<TokenOutput>> Engine::Step() {
  impl_->progress.clear();
  std::unique_ptr<StepWork> step = Begin();
  if (step == nullptr) return std::vector<TokenOutput>();
  if (absl::Status status = Execute(*step); !status.ok()) return status;
  return Commit(std::move(step));
}

EngineStats Engine::stats() const {
  const Scheduler& scheduler = impl_->sequences->scheduler();
  const KvBlocks& kv = impl_->sequences->kv();
  EngineStats stats = impl_->counts;
  stats.blocks_total = kv.total();
  stats.blocks_free = impl_->sequences->unpromised_blocks();
  stats.running = scheduler.running();
  stats.waiting = scheduler.waiting();
  stats.waiting_tokens = scheduler.waiting_tokens();
  stats.preemptions = scheduler.preemptions();
  stats.block_copies = kv.copies();
  stats.prefix = kv.cache().stats();
  stats.cached_blocks = kv.cache().stored();
  stats.drafted = scheduler.drafted();
  return stats;
}

int Engine::context_length() const {
  return impl_->sequences->limits().max_context;
}

const kernels::KvLayout& Engine::kv_layout() const {
  return impl_->layout;
}

}  // namespace sluice::engine
