// How a model is cut among the ranks of an instance (tensor parallelism). Pure.
//
// Every linear layer is cut by its outputs: query, key and value rows by heads, the other matrices by rows in whole
// panels where there are enough, the head by blocks of logits. No sum is cut, so ranks only exchange columns
// (kernels/collective.h) and results have the bits of one rank.
//
// KV heads are cut as evenly as they go (3 among 2: 2 and 1). Where there are more ranks than KV heads, each rank keeps
// one, several keep the same, and the query heads that use it are cut among them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/files/model_config.h"

namespace sluice::engine {

struct Part {  // half open
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Part&) const = default;
};

// Borders [ranks + 1] of n things, as even as multiples of `grain` allow; the last part may end off one.
std::vector<int64_t> EvenBorders(int64_t n, int ranks, int64_t grain);

class TensorSplit {
 public:
  // INVALID_ARGUMENT for fewer than one rank, or more than the model has query heads.
  static absl::StatusOr<TensorSplit> Of(const ModelConfig& config, int ranks);

  int ranks() const { return int(heads_.size()); }
  Part heads(int rank) const { return heads_[size_t(rank)]; }        // query heads
  Part kv_heads(int rank) const { return kv_heads_[size_t(rank)]; }  // those they use
  Part ffn(int rank) const { return PartOf(ffn_, rank); }
  Part hidden(int rank) const { return PartOf(hidden_, rank); }
  Part vocab(int rank) const { return PartOf(vocab_, rank); }  // may be empty

  // [ranks + 1] columns, for kernels::GatherParams.
  const std::vector<int64_t>& attention_borders() const { return attention_; }
  const std::vector<int64_t>& ffn_borders() const { return ffn_; }
  const std::vector<int64_t>& hidden_borders() const { return hidden_; }
  const std::vector<int64_t>& vocab_borders() const { return vocab_; }

 private:
  static Part PartOf(const std::vector<int64_t>& borders, int rank) {
    return {borders[size_t(rank)], borders[size_t(rank) + 1]};
  }

  std::vector<Part> heads_, kv_heads_;  // [ranks]
  std::vector<int64_t> attention_, ffn_, hidden_, vocab_;
};

}  // namespace sluice::engine
