// A decoder of a few small layers with random weights: drives the phases of a backend as the engine would, in any split
// into steps, and gives the logits of every position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace sluice::kernels::conformance {

struct TinyShape {
  int layers = 2;
  int hidden = 96;
  int heads = 9;
  int kv_heads = 3;
  int head_dim = 32;
  int rotary_dim = 32;
  int ffn = 160;
  int vocab = 141;  // blocks of logits, the last not full
  int block_size = 16;
  DType type = DType::kQ4_1;  // of all matrices
  RopeStyle rope = RopeStyle::kInterleaved;
  MlpActivation activation = MlpActivation::kSilu;
  bool bias = false;

  int q_dim() const { return heads * head_dim; }
  int kv_dim() const { return kv_heads * head_dim; }
  std::string ToString() const;
};

// A random tensor and the memory it lies in; values are about 1 / sqrt(cols), whatever the type.
struct Matrix {
  DType type = DType::kF32;
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> bytes;

  HostTensor tensor() const { return {type, bytes.data(), rows, cols}; }
  std::vector<float> Row(int64_t i) const;  // dequantised
};
Matrix RandomMatrix(DType type, int64_t rows, int64_t cols, std::mt19937& rng);

struct TinyWeights {
  struct Layer {
    Matrix norm1, wq, wk, wv, bq, bk, bv, wo, norm2, gate, up, down;
  };

  TinyWeights(const TinyShape& shape, int max_positions, uint32_t seed);

  TinyShape shape;
  std::vector<Layer> layers;
  Matrix embedding, final_norm, rope;
  float eps = 1e-5f;
};

// `count` tokens of sequence `seq`, the next ones it has not seen, and behind them rows of other tokens: these are
// computed and stored as well, and then rolled back, as drafts that do not hold. At most kMaxDrafts.
struct Piece {
  int seq;
  int count;
  std::vector<int32_t> drafts = {};
};
inline constexpr int kMaxDrafts = 8;

using Logits = std::vector<std::vector<float>>;  // [position][vocab]

class TinyModel {
 public:
  // CHECKs; the weights must outlive the model. Sequence s gets random physical blocks from `block_seed`.
  TinyModel(const Backend& backend, const TinyWeights& weights, std::vector<std::vector<int32_t>> tokens,
            uint32_t block_seed);

  // One step over these pieces in this order.
  void Step(const std::vector<Piece>& pieces);

  // Steps until every token is computed: `chunk` tokens of one sequence after another.
  void RunAlone(int chunk);
  // Random pieces of random sequences, and random drafts behind some of them.
  void RunMixed(std::mt19937& rng, bool drafts);

  // Sequence `seq` has computed nothing; it takes over the first blocks of `from` and what they hold, or the first
  // `tokens` of that.
  void Share(int seq, int from, int num_blocks, int tokens = -1);

  int num_seqs() const { return int(tokens_.size()); }
  int left(int seq) const { return int(tokens_[size_t(seq)].size()) - computed_[size_t(seq)]; }
  const Logits& logits(int seq) const { return logits_[size_t(seq)]; }
  // Of the drafts of the sequence's last piece.
  const Logits& draft_logits(int seq) const { return draft_logits_[size_t(seq)]; }
  // The bytes of all blocks that the sequence has filled, [block][layer]. How they lie inside is the backend's
  // business, and in a block that is not full so is what the unused slots hold.
  std::vector<uint8_t> ReadFullBlocks(int seq, const std::function<void(void*, const void*, size_t)>& read);
  KvPool& kv() { return *kv_; }
  std::vector<int32_t>& blocks(int seq) { return blocks_[size_t(seq)]; }

  // Takes the logits of these rows only; those of the others stay empty. Drafts have theirs in any case.
  void set_wanted(std::function<bool(int seq, int position)> wanted) { wanted_ = std::move(wanted); }
  // Fills table entries past the context with this.
  void set_unused_entries(int32_t value) { unused_entry_ = value; }

 private:
  struct Packed {
    std::unique_ptr<Weight> norm1, wq, wk, wv, bq, bk, bv, wo, norm2, gate, up, down;
  };

  void RunLayers();
  void IssuePhases(float* logits, float* maxima);

  const TinyWeights& w_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<std::vector<int32_t>> blocks_;  // [seq][max_blocks_]
  std::vector<int> computed_;
  std::vector<Logits> logits_, draft_logits_;
  int max_blocks_ = 0;
  std::function<bool(int, int)> wanted_;
  std::optional<int32_t> unused_entry_;
  std::vector<Packed> layers_;
  std::unique_ptr<Weight> embedding_, head_, final_norm_, rope_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Activation> x_, q_, k_, v_, attn_, h_;
};

}  // namespace sluice::kernels::conformance
