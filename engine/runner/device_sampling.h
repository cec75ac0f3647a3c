// Which rows of a step's logits the device turns into tokens, in the words of kernels/sampling.h; the rest of its
// answers.
//
// Promise: a task's results are those of SampleRows on the same logits, bit for bit. What the device cannot do, or has
// no room for, is left to the host, whole tasks at a time: choices that fork off (several draws of one row) and drafts
// that are judged by the classic rule among them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner/sample_rows.h"
#include "engine/runner/step.h"
#include "engine/sampler.h"
#include "kernels/sampling.h"

namespace sluice::engine {

class DeviceSampling {
 public:
  // limits as of kernels::Context; of no rows: everything is the host's.
  DeviceSampling(const kernels::SampleLimits& limits, int vocab) : limits_(limits), vocab_(vocab) {}

  // A new step.
  void Clear();

  // The rows of a task, the next in the batch. False: they are the host's.
  bool AddTask(const SampleTask& task, DraftRule rule);

  // One row at a time. A row that a draw or a given token is refused for (false) is not added. counts: as for Sample,
  // with `drafts` behind them.
  void AddHost() { rows_.emplace_back(); }
  bool AddGiven(int32_t token, int logprobs);
  bool AddDraw(const SamplingParams& params, const SampleKey& key, int generated, const TokenCounts* counts,
               std::span<const int32_t> drafts);

  // Of all rows so far; valid until another is added.
  const kernels::SampleBatch& batch();

  // After the step: the answer of a row that is not the host's, and of a task whose rows begin there.
  Sampled Taken(size_t row) const;
  SampleResult TakenTask(const SampleTask& task, size_t first_row) const;

 private:
  bool AddRows(const SampleTask& task, DraftRule rule);
  bool TakesLogprobs(int logprobs) const { return std::min(logprobs, vocab_) <= limits_.tops; }
  void Add(kernels::SampleRow row);
  // False: no room.
  bool AddEdits(const SamplingParams& params, int generated, const TokenCounts* counts, std::span<const int32_t> drafts,
                kernels::SampleRow& row);

  const kernels::SampleLimits limits_;
  const int vocab_;
  std::vector<kernels::SampleRow> rows_;
  std::vector<kernels::LogitEdit> edits_;
  std::vector<kernels::SampledToken> tokens_, tops_;
  size_t num_tops_ = 0;
  kernels::SampleBatch batch_;
};

}  // namespace sluice::engine
