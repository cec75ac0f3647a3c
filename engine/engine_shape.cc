#include "engine/engine_shape.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/layer_groups.h"

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

}  // namespace

absl::StatusOr<EngineShape> ShapeOf(const ModelConfig& config, const kernels::Backend& backend,
                                    const EngineOptions& options) {
  if (absl::Status status = CheckOptions(options, config); !status.ok()) return status;
  EngineShape shape;
  const SchedulerLimits& scheduler = options.scheduler;
  shape.limits = {.max_step_tokens = scheduler.max_step_tokens,
                  .max_step_seqs = scheduler.max_step_seqs,
                  .max_step_logits = std::max(scheduler.max_step_logits, scheduler.max_step_seqs),
                  .max_context = options.max_context > 0 ? options.max_context : config.context_length,
                  .block_size = options.block_size};
  if (absl::Status status = CheckSupported(LayerGroupsOf(config, shape.limits.max_context)); !status.ok())
    return status;
  shape.layout = {.num_layers = config.num_layers,
                  .num_kv_heads = config.num_kv_heads,
                  .head_dim = config.head_dim,
                  .block_size = options.block_size,
                  .dtype = backend.kv_dtype()};
  const absl::StatusOr<int> num_blocks = NumBlocks(options, shape.layout, shape.limits.max_context);
  if (!num_blocks.ok()) return num_blocks.status();
  shape.num_blocks = *num_blocks;
  return shape;
}

}  // namespace sluice::engine
