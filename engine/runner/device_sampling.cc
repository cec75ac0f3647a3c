#include "engine/runner/device_sampling.h"

#include <algorithm>
#include <utility>

#include "engine/sampler_edits.h"
#include "engine/speculation/verify_drafts.h"

namespace sluice::engine {

void DeviceSampling::Clear() {
  rows_.clear();
  edits_.clear();
  num_tops_ = 0;
}

void DeviceSampling::Add(kernels::SampleRow row) {
  row.first_top = int32_t(num_tops_);
  if (row.logprobs > 0) num_tops_ += size_t(row.logprobs);
  rows_.push_back(row);
}

bool DeviceSampling::AddGiven(int32_t token, int logprobs) {
  if (int(rows_.size()) >= limits_.rows || !TakesLogprobs(logprobs)) return false;
  Add({.kind = kernels::SampleKind::kGiven, .token = token, .logprobs = std::min(logprobs, vocab_)});
  return true;
}

bool DeviceSampling::AddDraw(const SamplingParams& params, const SampleKey& key, int generated,
                             const TokenCounts* counts, std::span<const int32_t> drafts) {
  if (int(rows_.size()) >= limits_.rows || !TakesLogprobs(params.logprobs)) return false;
  kernels::SampleRow row{.kind = kernels::SampleKind::kDraw,
                         .logprobs = std::min(params.logprobs, vocab_),
                         .temperature = params.temperature,
                         .top_p = params.top_p,
                         .min_p = params.min_p,
                         .top_k = params.top_k,
                         .repetition_penalty = params.repetition_penalty,
                         .presence_penalty = params.presence_penalty,
                         .frequency_penalty = params.frequency_penalty,
                         .choice = uint32_t(key.choice),
                         .position = uint32_t(key.position),
                         .seed = key.seed};
  if (!AddEdits(params, generated, counts, drafts, row)) return false;
  Add(row);
  return true;
}

bool DeviceSampling::AddEdits(const SamplingParams& params, int generated, const TokenCounts* counts,
                              std::span<const int32_t> drafts, kernels::SampleRow& row) {
  const size_t first = edits_.size();
  const auto in_vocabulary = [&](int32_t id) { return id >= 0 && id < vocab_; };
  const std::vector<int32_t> masked =
      generated < params.min_tokens ? MaskedIds(params, vocab_) : std::vector<int32_t>();
  row.token = LowestUnmasked(masked, vocab_);

  // Tokens that more than the counts have a word on.
  std::vector<int32_t> special = masked;
  for (const auto& [id, bias] : params.logit_bias) {
    if (in_vocabulary(id)) special.push_back(id);
  }
  if (params.penalizes()) std::copy_if(drafts.begin(), drafts.end(), std::back_inserter(special), in_vocabulary);
  std::sort(special.begin(), special.end());
  special.erase(std::unique(special.begin(), special.end()), special.end());
  for (const int32_t id : special) {
    kernels::LogitEdit edit{.id = id};
    if (params.penalizes()) {
      const auto found = counts->occurrences().find(id);
      if (found != counts->occurrences().end()) edit.count = found->second;
      const auto more = int32_t(std::count(drafts.begin(), drafts.end(), id));
      if (more > 0) edit.count = std::max(edit.count, 0) + more;
    }
    const auto bias = std::lower_bound(params.logit_bias.begin(), params.logit_bias.end(), id,
                                       [](const auto& entry, int32_t wanted) { return entry.first < wanted; });
    if (bias != params.logit_bias.end() && bias->first == id) edit.bias = bias->second;
    edit.masked = std::binary_search(masked.begin(), masked.end(), id);
    edits_.push_back(edit);
  }
  if (params.penalizes()) {
    for (const auto& [id, count] : counts->occurrences()) {
      if (!in_vocabulary(id) || std::binary_search(special.begin(), special.end(), id)) continue;
      edits_.push_back({.id = id, .count = count});
    }
  }
  if (edits_.size() > size_t(limits_.edits)) {
    edits_.resize(first);
    return false;
  }
  row.first_edit = int32_t(first);
  row.num_edits = int32_t(edits_.size() - first);
  return true;
}

bool DeviceSampling::AddRows(const SampleTask& task, DraftRule rule) {
  if (task.samples && (task.states.size() > 1 || (rule == DraftRule::kRejection && !task.drafts.empty()))) return false;
  for (const int32_t target : task.targets) {
    if (!AddGiven(target, task.target_logprobs)) return false;
  }
  if (!task.samples) return true;
  const SampleState& s = *task.states[0];
  for (size_t i = 0; i <= task.drafts.size(); ++i) {
    const SampleKey key{s.params.seed, s.choice, s.position + int(i)};
    if (!AddDraw(s.params, key, s.generated + int(i), &s.counts, std::span(task.drafts).first(i))) return false;
  }
  return true;
}

bool DeviceSampling::AddTask(const SampleTask& task, DraftRule rule) {
  const size_t rows = rows_.size(), edits = edits_.size(), tops = num_tops_;
  if (AddRows(task, rule)) return true;
  edits_.resize(edits);
  num_tops_ = tops;
  rows_.resize(rows);
  rows_.resize(rows + NumLogits(task));
  return false;
}

const kernels::SampleBatch& DeviceSampling::batch() {
  tokens_.resize(rows_.size());
  tops_.resize(num_tops_);
  batch_ = {.rows = rows_, .edits = edits_, .tokens = tokens_, .tops = tops_};
  return batch_;
}

Sampled DeviceSampling::Taken(size_t row) const {
  Sampled sampled{.token = tokens_[row].token, .logprob = tokens_[row].logprob};
  for (int i = 0; i < rows_[row].logprobs; ++i) {
    const kernels::SampledToken& top = tops_[size_t(rows_[row].first_top + i)];
    sampled.top.emplace_back(top.token, top.logprob);
  }
  return sampled;
}

SampleResult DeviceSampling::TakenTask(const SampleTask& task, size_t first_row) const {
  SampleResult result;
  for (size_t i = 0; i < task.targets.size(); ++i) result.scored.push_back(Taken(first_row + i));
  if (!task.samples) return result;
  const size_t row = first_row + task.targets.size();
  SampleState& s = *task.states[0];
  result.tokens =
      HoldingDrafts(task.drafts, s.params, s.generated, &s.counts, [&](size_t i) { return Taken(row + i); });
  s.Advance(int(result.tokens.size()), result.tokens.back().token);
  return result;
}

}  // namespace sluice::engine
