#include "engine/sampler_edits.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>

namespace sluice::engine {

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
  masked_ = params.eos_ids;
  masked_.insert(masked_.end(), params.stop_ids.begin(), params.stop_ids.end());
  std::erase_if(masked_, [&](int32_t id) { return !InVocabulary(id); });
  std::sort(masked_.begin(), masked_.end());
  masked_.erase(std::unique(masked_.begin(), masked_.end()), masked_.end());
  for (int32_t id : masked_) Set(id, -std::numeric_limits<float>::infinity());
}

int32_t LogitEdits::LowestUnmasked() const {
  int32_t id = 0;
  for (int32_t m : masked_) {
    if (m != id) break;
    ++id;
  }
  return InVocabulary(id) ? id : 0;
}

}  // namespace sluice::engine
