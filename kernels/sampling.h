// What a device needs to turn rows of logits into tokens, and what it gives back. What the fields mean, the order of
// the transforms and every tie are engine/sampler.h's; the arithmetic is sampling_math.h's: a device's token and its
// log-probabilities are those of the CPU, bit for bit.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels {

enum class SampleKind : int32_t {
  kHost,   // the logits are wanted on the host
  kDraw,   // a token is drawn
  kGiven,  // the token is given, and its log-probability wanted
};

// One row of logits. `edits` and `tops` are counted in SampleBatch's.
struct SampleRow {
  SampleKind kind = SampleKind::kHost;
  int32_t token = 0;      // kGiven: that one; kDraw: the token where edits leave no logit above -infinity
  int32_t logprobs = -1;  // alternatives, at most the vocabulary; -1: not even the token's own log-probability
  int32_t first_top = 0;  // where the alternatives go
  int32_t first_edit = 0, num_edits = 0;
  float temperature = 0.0f;  // 0: greedy
  float top_p = 1.0f, min_p = 0.0f;
  int32_t top_k = 0;  // 0: all
  float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  uint32_t choice = 0, position = 0;  // with the seed the key of the random numbers
  uint64_t seed = 0;
};

// What changes one logit of a row: bias, then penalties, then the mask. Ids are in the vocabulary, each once in a row.
struct LogitEdit {
  int32_t id = 0;
  int32_t count = -1;  // occurrences in the answer; 0: in the prompt only; -1: in neither, and no penalty
  float bias = 0.0f;
  int32_t masked = 0;  // 1: the token may not be drawn
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0.0f;  // where it is wanted
};

// All rows of logits of a step; host arrays that must stay alive until Finish().
struct SampleBatch {
  std::span<const SampleRow> rows;   // [logits]
  std::span<const LogitEdit> edits;  // of the rows, one after the other
  std::span<SampledToken> tokens;    // out [logits]: those of rows that are drawn or given
  std::span<SampledToken> tops;      // out: the alternatives, best first
};

// What a context samples; all 0: nothing.
struct SampleLimits {
  int rows = 0;   // of a step
  int edits = 0;  // of a step
  int tops = 0;   // of a row
};

}  // namespace sluice::kernels
