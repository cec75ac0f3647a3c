#include "engine/engine.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/chunk_pace.h"
#include "engine/layer_groups.h"
#include "engine/model/decoder.h"
#include "engine/runner/executor.h"
#include "engine/speculation/row_cost.h"

namespace sluice::engine {
namespace {

constexpr int kFirstChunkTokens = 64;  // beside decode rows, until steps were seen
constexpr double kFirstRowCost = 0.3;  // until steps of several sizes were seen

absl::Status CheckOptions(const EngineOptions& o, const ModelConfig& config) {
  const auto positive = [](absl::string_view name, int64_t value) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be positive"));
  };
  if (o.block_size < 1) return positive("block_size", o.block_size);
  if (o.num_blocks < 0) return positive("num_blocks", o.num_blocks);
  if (o.num_blocks == 0 && o.max_kv_bytes < 1) return positive("max_kv_bytes", o.max_kv_bytes);
  if (o.scheduler.max_step_tokens < 1) return positive("max_step_tokens", o.scheduler.max_step_tokens);
  if (o.scheduler.max_step_seqs < 1) return positive("max_step_seqs", o.scheduler.max_step_seqs);
  if (o.scheduler.starvation_plans < 1) return positive("starvation_plans", o.scheduler.starvation_plans);
  if (o.scheduler.max_drafts < 0) return positive("max_drafts", o.scheduler.max_drafts);
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
  std::unique_ptr<kernels::KvPool> kv;
  std::unique_ptr<SequenceTable> sequences;
  std::unique_ptr<Executor> executor;
  std::function<double()> seconds;
  bool drafts = false;
  RowCost row_cost{kFirstRowCost};
  std::optional<ChunkPace> pace;  // where steps have a target
  uint64_t begun = 0, committed = 0;  // numbers of steps
  std::vector<SequenceProgress> progress;  // of the last step
  EngineStats counts;
};

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const ModelFile& file, const kernels::Backend& backend,
                                                       const EngineOptions& options) {
  const ModelConfig& config = file.config();
  if (absl::Status status = CheckOptions(options, config); !status.ok()) return status;
  const int max_context = options.max_context > 0 ? options.max_context : config.context_length;
  if (absl::Status status = CheckSupported(LayerGroupsOf(config, max_context)); !status.ok()) return status;
  const SchedulerLimits& scheduler = options.scheduler;
  const int max_logits = std::max(scheduler.max_step_logits, scheduler.max_step_seqs);

  auto impl = std::make_unique<Impl>();
  absl::StatusOr<std::unique_ptr<Decoder>> decoder =
      Decoder::Create(file, backend, {scheduler.max_step_tokens, scheduler.max_step_seqs, max_logits, max_context},
                      options.packed_folder);
  if (!decoder.ok()) return decoder.status();
  impl->decoder = *std::move(decoder);

  const kernels::KvLayout layout = impl->decoder->kv_layout(options.block_size);
  const absl::StatusOr<int> num_blocks = NumBlocks(options, layout, max_context);
  if (!num_blocks.ok()) return num_blocks.status();
  absl::StatusOr<std::unique_ptr<kernels::KvPool>> kv = backend.NewKvPool(layout, *num_blocks);
  if (!kv.ok()) return kv.status();
  impl->kv = *std::move(kv);

  SequenceLimits limits{.block_size = options.block_size,
                        .num_blocks = *num_blocks,
                        .max_context = max_context,
                        .vocab = impl->decoder->vocab(),
                        .prefix_caching = options.prefix_caching,
                        .model_hash = options.model_hash,
                        .numerics = std::string(backend.numerics_id())};
  impl->sequences = std::make_unique<SequenceTable>(std::move(limits), scheduler, options.new_drafter);
  impl->executor = std::make_unique<Executor>(impl->decoder.get(), impl->kv.get(), max_logits,
                                              options.draft_rule, options.seconds);
  impl->seconds = options.seconds;
  if (options.step_target_seconds > 0 && options.seconds) impl->pace.emplace(options.step_target_seconds, kFirstChunkTokens);
  impl->drafts = options.new_drafter != nullptr && scheduler.max_drafts > 0;
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
    step = std::make_unique<StepWork>(
        MakeStep(++impl_->begun, std::move(plan), impl_->sequences->limits().block_size));
    impl_->sequences->kv().StepBegun(step->number);
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
  return impl_->kv->layout();
}

}  // namespace sluice::engine
