#include "engine/engine_shape.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/layer_groups.h"
#include "engine/parallel/tensor_split.h"

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

bool DeviceDecides(const EngineOptions& o, const kernels::Backend& backend) {
  return o.num_blocks == 0 && o.device_memory_share > 0 && backend.FreeMemory();
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

// This rank's pool: where ranks share one, of all heads.
absl::StatusOr<kernels::KvLayout> PoolOf(const ModelConfig& config, const kernels::Backend& backend,
                                         const EngineOptions& options, kernels::KvLayout whole) {
  if (!backend.has_own_memory() || options.collective == nullptr) return whole;
  const auto split = TensorSplit::Of(config, options.collective->size());
  if (!split.ok()) return split.status();
  whole.num_kv_heads = int(split->kv_heads(options.collective->rank()).size());
  return whole;
}

// Words travel as columns; the collective only copies them, whatever they are as numbers.
absl::StatusOr<int> LeastOfRanks(kernels::Collective& collective, int mine) {
  const int ranks = collective.size();
  std::vector<float> row(static_cast<size_t>(ranks));
  std::memcpy(&row[size_t(collective.rank())], &mine, sizeof(mine));
  std::vector<int64_t> borders;
  for (int rank = 0; rank <= ranks; ++rank) borders.push_back(rank);
  const absl::Status told = collective.Gather(row.data(), ranks, 1, borders, kernels::Collective::To::kAll);
  if (!told.ok()) return told;
  std::vector<int> all(static_cast<size_t>(ranks));
  std::memcpy(all.data(), row.data(), all.size() * sizeof(int));
  return *std::min_element(all.begin(), all.end());
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
  const absl::StatusOr<kernels::KvLayout> pool = PoolOf(config, backend, options, shape.layout);
  if (!pool.ok()) return pool.status();
  shape.pool = *pool;
  if (DeviceDecides(options, backend)) return shape;
  const absl::StatusOr<int> num_blocks = NumBlocks(options, shape.pool, shape.limits.max_context);
  if (!num_blocks.ok()) return num_blocks.status();
  shape.num_blocks = *num_blocks;
  return shape;
}

absl::Status SizePool(const kernels::Backend& backend, const EngineOptions& options, EngineShape& shape) {
  if (DeviceDecides(options, backend)) {
    EngineOptions sized = options;
    sized.max_kv_bytes = int64_t(options.device_memory_share * double(*backend.FreeMemory()));
    const absl::StatusOr<int> num_blocks = NumBlocks(sized, shape.pool, shape.limits.max_context);
    if (!num_blocks.ok()) return num_blocks.status();
    shape.num_blocks = *num_blocks;
  }
  if (!backend.has_own_memory() || options.collective == nullptr) return absl::OkStatus();
  const absl::StatusOr<int> least = LeastOfRanks(*options.collective, shape.num_blocks);
  if (least.ok()) shape.num_blocks = *least;
  return least.status();
}

}  // namespace sluice::engine
