// What changes single logits before the distribution is formed: logit bias, penalties, the min_tokens mask.
//
// Semantics of vLLM and Hugging Face. bias: added. repetition_penalty r, for tokens of prompt or answer: a positive
// logit is divided by r, a negative one multiplied. frequency_penalty: subtracted once per occurrence in the answer;
// presence_penalty: once if there is any. Mask: end-of-sequence and stop tokens become -infinity while the answer has
// fewer than min_tokens tokens.
//
// Cost: by the number of tokens that are changed, not by the vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/token_counts.h"

namespace sluice::engine {

// End-of-sequence and stop tokens of the vocabulary, ascending, each once; and the lowest id that is none of such a
// list (0 if all are).
std::vector<int32_t> MaskedIds(const SamplingParams& params, int vocab);
int32_t LowestUnmasked(std::span<const int32_t> masked, int vocab);

// Edits a row in its constructor and takes everything back in its destructor. The row must outlive it.
class LogitEdits {
 public:
  // generated: tokens of the answer so far. counts: may be null unless params.penalizes().
  LogitEdits(std::span<float> logits, const SamplingParams& params, int generated, const TokenCounts* counts);
  ~LogitEdits();
  LogitEdits(const LogitEdits&) = delete;
  LogitEdits& operator=(const LogitEdits&) = delete;

  bool empty() const { return undo_.empty(); }

  // The lowest id that the mask leaves; 0 if it leaves none.
  int32_t LowestUnmasked() const { return engine::LowestUnmasked(masked_, int(logits_.size())); }

 private:
  void Set(int32_t id, float logit);
  bool InVocabulary(int32_t id) const { return id >= 0 && size_t(id) < logits_.size(); }
  void Penalize(const SamplingParams& params, const TokenCounts& counts);
  void Mask(const SamplingParams& params);

  std::span<float> logits_;
  std::vector<std::pair<int32_t, float>> undo_;  // in order of the edits
  std::vector<int32_t> masked_;                  // ascending
};

}  // namespace sluice::engine
