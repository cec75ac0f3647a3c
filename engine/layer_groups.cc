#include "engine/layer_groups.h"

#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/kv_layout.h"

namespace sluice::engine {
namespace {

const char* Name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kFull:
      return "full attention";
    case LayerKind::kWindow:
      return "window attention";
    case LayerKind::kLatent:
      return "latent attention";
    case LayerKind::kState:
      return "a state per sequence";
  }
  return "unknown";
}

}  // namespace

BlockRange HeldBlocks(const LayerGroup& group, int tokens, int block_size) {
  CHECK(tokens >= 0 && block_size > 0);
  const int end = kernels::BlocksFor(tokens, block_size);
  switch (group.kind) {
    case LayerKind::kFull:
    case LayerKind::kLatent:
      return {0, end};
    case LayerKind::kWindow:
      // The next token sees itself and window - 1 before it.
      CHECK_GT(group.window, 0);
      return {std::min(std::max(tokens - (group.window - 1), 0) / block_size, end), end};
    case LayerKind::kState:
      return {};
  }
  return {};
}

bool CanResume(const LayerGroup& group, int tokens, int block_size, BlockRange stored, bool state_kept) {
  if (group.kind == LayerKind::kState) return state_kept;
  const BlockRange held = HeldBlocks(group, tokens, block_size);
  return held.begin == held.end || (stored.begin <= held.begin && stored.end >= held.end);
}

std::vector<LayerGroup> LayerGroupsOf(const ModelConfig& config, int max_context) {
  LayerGroup all;
  if (config.window > 0 && config.window < max_context) {
    all.kind = LayerKind::kWindow;
    all.window = config.window;
  }
  all.layers.resize(size_t(config.num_layers));
  std::iota(all.layers.begin(), all.layers.end(), 0);
  return {all};
}

absl::Status CheckSupported(const std::vector<LayerGroup>& groups) {
  for (const LayerGroup& group : groups) {
    if (group.kind == LayerKind::kFull) continue;
    const std::string rest = group.kind == LayerKind::kWindow
                                 ? absl::StrCat("; with a max_context of ", group.window, " that is the same")
                                 : "";
    return absl::UnimplementedError(absl::StrCat("layer ", group.layers.empty() ? 0 : group.layers.front(), " has ",
                                                 Name(group.kind), "; only full attention is computed yet", rest));
  }
  if (groups.size() != 1) return absl::UnimplementedError(absl::StrCat(groups.size(), " groups of layers; one is computed"));
  return absl::OkStatus();
}

}  // namespace sluice::engine
