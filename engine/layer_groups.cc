#include "engine/layer_groups.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace sluice::engine {

const char* Name(KvKind kind) {
  switch (kind) {
    case KvKind::kFull:
      return "full attention";
    case KvKind::kWindow:
      return "window attention";
    case KvKind::kLatent:
      return "latent attention";
    case KvKind::kState:
      return "per-sequence state";
  }
  return "unknown";
}

BlockRange NeededBlocks(const LayerGroup& group, int64_t tokens, int block_size) {
  if (group.kind == KvKind::kState) return {};
  const int end = kernels::BlocksFor(tokens, block_size);
  if (group.kind != KvKind::kWindow) return {0, end};
  // The next token is one of those that its row sees.
  const int64_t first = std::max<int64_t>(0, tokens - (group.window - 1));
  return {std::min(int(first / block_size), end), end};
}

int64_t NeededBytes(const std::vector<LayerGroup>& groups, int64_t tokens, int block_size) {
  int64_t bytes = 0;
  for (const LayerGroup& group : groups) {
    const int64_t blocks = group.kind == KvKind::kState ? 1 : NeededBlocks(group, tokens, block_size).size();
    bytes += blocks * group.block_bytes;
  }
  return bytes;
}

std::vector<LayerGroup> LayerGroupsOf(const ModelConfig& config, const kernels::KvLayout& layout) {
  LayerGroup group;
  group.layers.resize(size_t(config.num_layers));
  std::iota(group.layers.begin(), group.layers.end(), 0);
  group.block_bytes = int64_t(layout.block_bytes_all_layers());
  if (config.window > 0 && config.window < config.context_length) {  // a longer one hides nothing
    group.kind = KvKind::kWindow;
    group.window = config.window;
  }
  return {group};
}

absl::Status CheckServed(const std::vector<LayerGroup>& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].kind == KvKind::kFull) continue;
    return absl::UnimplementedError(
        absl::StrCat("layer group ", i, " (", groups[i].layers.size(), " layers) is ", Name(groups[i].kind),
                     groups[i].kind == KvKind::kWindow ? absl::StrCat(" over ", groups[i].window, " tokens") : "",
                     "; only full attention is served"));
  }
  if (groups.size() != 1) {
    return absl::UnimplementedError(absl::StrCat("the model has ", groups.size(), " layer groups; only one is served"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
