#include "engine/sampler_edits.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>

namespace sluice::engine {

std::vector<int32_t> MaskedIds(const SamplingParams& params, int vocab) {
  std::vector<int32_t> masked = params.eos_ids;
  masked.insert(masked.end(), params.stop_ids.begin(), params.stop_ids.end());
  std::erase_if(masked, [&](int32_t id) { return id < 0 || id >= vocab; });
  std::sort(masked.begin(), masked.end());
  masked.erase(std::unique(masked.begin(), masked.end()), masked.end());
  return masked;
}

int32_t LowestUnmasked(std::span<const int32_t> masked, int vocab) {
  int32_t id = 0;
  for (int32_t m : masked) {
    if (m != id) break;
    ++id;
  }
  return id < vocab ? id : 0;
}

LogitEdits::LogitEdits(std::span<float> logits, const SamplingParams& params, int generated, const TokenCounts* counts)
    : logits_(logits) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (InVocabulary(id)) Set(id, logits_[id] + bias);
  }
  if (params.penalizes()) {
    CHECK(counts != nullptr) << "penalties need the counts";
    Penalize(params, *counts);
  }
  if (generated < params.min_tokens) Mask(params);
}

LogitEdits::~LogitEdits() {
  for (auto edit = undo_.rbegin(); edit != undo_.rend(); ++edit) logits_[edit->first] = edit->second;
}

void LogitEdits::Set(int32_t id, float logit) {
  undo_.emplace_back(id, logits_[id]);
  logits_[id] = logit;
}

// In double: an infinity stays what it is, whatever finite number is applied.
void LogitEdits::Penalize(const SamplingParams& params, const TokenCounts& counts) {
  const double repetition = params.repetition_penalty, presence = params.presence_penalty,
               frequency = params.frequency_penalty;
  undo_.reserve(undo_.size() + counts.occurrences().size());
  for (const auto& [id, count] : counts.occurrences()) {
    if (!InVocabulary(id)) continue;
    double logit = logits_[id];
    logit = logit > 0.0 ? logit / repetition : logit * repetition;
    if (count > 0) logit -= frequency * count + presence;
    Set(id, float(logit));
  }
}

void LogitEdits::Mask(const SamplingParams& params) {
  masked_ = MaskedIds(params, int(logits_.size()));
  for (int32_t id : masked_) Set(id, -std::numeric_limits<float>::infinity());
}

}  // namespace sluice::engine
