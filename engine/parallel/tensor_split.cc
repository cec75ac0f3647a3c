#include "engine/parallel/tensor_split.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"

namespace sluice::engine {
namespace {

constexpr int64_t kPanel = 16;  // outputs that kernels compute together

// Whole panels where every rank gets one.
std::vector<int64_t> PanelBorders(int64_t n, int ranks) {
  return EvenBorders(n, ranks, n >= kPanel * ranks ? kPanel : 1);
}

}  // namespace

std::vector<int64_t> EvenBorders(int64_t n, int ranks, int64_t grain) {
  const int64_t units = (n + grain - 1) / grain;
  std::vector<int64_t> borders;
  for (int rank = 0; rank <= ranks; ++rank) borders.push_back(std::min(n, units * rank / ranks * grain));
  return borders;
}

absl::StatusOr<TensorSplit> TensorSplit::Of(const ModelConfig& config, int ranks) {
  if (ranks < 1 || ranks > config.num_heads) {
    return absl::InvalidArgumentError(absl::StrCat("tensor parallelism of ", ranks, ": the model can be cut in 1 to ",
                                                   config.num_heads, " parts, as it has that many query heads"));
  }
  TensorSplit split;
  const int kv = config.num_kv_heads, group = config.num_heads / kv;
  if (ranks <= kv) {
    const std::vector<int64_t> borders = EvenBorders(kv, ranks, 1);
    for (int rank = 0; rank < ranks; ++rank) {
      const Part mine = PartOf(borders, rank);
      split.kv_heads_.push_back(mine);
      split.heads_.push_back({mine.begin * group, mine.end * group});
    }
  } else {
    const std::vector<int64_t> first = EvenBorders(ranks, kv, 1);  // rank of each KV head
    for (int head = 0; head < kv; ++head) {
      const int sharers = int(first[size_t(head) + 1] - first[size_t(head)]);
      const std::vector<int64_t> borders = EvenBorders(group, sharers, 1);
      for (int i = 0; i < sharers; ++i) {
        split.kv_heads_.push_back({head, head + 1});
        const Part mine = PartOf(borders, i);
        split.heads_.push_back({head * group + mine.begin, head * group + mine.end});
      }
    }
  }
  for (const Part& heads : split.heads_) {
    if (heads.size() == 0) {
      return absl::InvalidArgumentError(absl::StrCat("tensor parallelism of ", ranks,
                                                     " leaves a rank without a query "
                                                     "head: the model has ",
                                                     config.num_heads, " and ", kv, " KV heads"));
    }
    split.attention_.push_back(heads.begin * config.head_dim);
  }
  split.attention_.push_back(int64_t(config.num_heads) * config.head_dim);
  split.ffn_ = PanelBorders(config.ffn, ranks);
  split.hidden_ = PanelBorders(config.hidden, ranks);
  split.vocab_ = EvenBorders(config.vocab, ranks, kernels::kLogitBlock);
  return split;
}

}  // namespace sluice::engine
