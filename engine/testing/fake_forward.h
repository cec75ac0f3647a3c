// A model whose KV is one number a token, for tests of everything around the device. A token's number is a hash of the
// token, its position and all numbers before it, read through the block table; the logits are made of it. So an answer is
// right only if every slot that its rows could read was right at that moment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner/sample_rows.h"
#include "engine/runner/step.h"
#include "engine/sequence_table.h"

namespace sluice::engine {

class FakeForward {
 public:
  FakeForward(int num_blocks, int block_size, int vocab)
      : block_size_(block_size), vocab_(vocab), kv_(size_t(num_blocks) * size_t(block_size), kPoison) {}

  // Peaked enough that repeated tokens occur, flat enough that draws differ.
  static std::vector<float> Logits(uint64_t number, int vocab) {
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (int i = 0; i < vocab; ++i) logits[size_t(i)] = float(Mix(number + uint64_t(i)) % 1000) / 250.0f;
    return logits;
  }

  // The number of tokens.back() after tokens[0, n - 1).
  static uint64_t Number(std::span<const uint64_t> before, int32_t token) {
    uint64_t number = uint64_t(token) + 1;
    for (const uint64_t n : before) number = Mix(number ^ n) + n;
    return Mix(number + before.size());
  }
  static std::vector<uint64_t> Numbers(std::span<const int32_t> tokens) {
    std::vector<uint64_t> numbers;
    for (const int32_t token : tokens) numbers.push_back(Number(numbers, token));
    return numbers;
  }

  uint64_t& slot(std::span<const int32_t> blocks, int position) {
    return kv_[size_t(blocks[size_t(position / block_size_)]) * size_t(block_size_) + size_t(position % block_size_)];
  }

  void Execute(StepWork& step) {
    for (const BlockCopy& copy : step.plan.copies) {
      for (int i = 0; i < block_size_; ++i) slot({&copy.to, 1}, i) = slot({&copy.from, 1}, i);
    }
    size_t next_logits = 0;
    StepInputs& in = step.inputs;
    for (size_t c = 0; c < step.tasks.size(); ++c) {
      const SampleTask& task = step.tasks[c];
      if (task.unknown_row >= 0) in.tokens[size_t(task.unknown_row)] = task.states[0]->last_token;
      const std::span<const int32_t> table(in.block_table.data() + c * size_t(in.max_blocks), size_t(in.max_blocks));
      std::vector<float> logits;
      const int rows = in.row_begin[c + 1] - in.row_begin[c];
      std::vector<uint64_t> before;
      for (int p = 0; p < in.context_len[c]; ++p) {
        const int row = in.row_begin[c] + p - (in.context_len[c] - rows);
        if (row >= in.row_begin[c]) slot(table, p) = Number(before, in.tokens[size_t(row)]);
        before.push_back(slot(table, p));
        if (next_logits < in.logit_rows.size() && in.logit_rows[next_logits] == row) {
          const std::vector<float> of_row = Logits(before.back(), vocab_);
          logits.insert(logits.end(), of_row.begin(), of_row.end());
          ++next_logits;
        }
      }
      step.results.push_back(SampleRows(task, logits, size_t(vocab_)));
    }
  }

 private:
  static constexpr uint64_t kPoison = 0xdeadbeefdeadbeefu;

  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  int block_size_, vocab_;
  std::vector<uint64_t> kv_;  // [num_blocks][block_size]
};

// One choice of an answer, computed with neither blocks nor steps.
struct FakeAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::kNone;

  bool operator==(const FakeAnswer&) const = default;
};

inline FakeAnswer AnswerAlone(const EngineRequest& r, int choice, int vocab) {
  FakeAnswer answer;
  SampleState state(r.sampling, choice, r.tokens, r.num_prompt_tokens);
  std::vector<uint64_t> numbers = FakeForward::Numbers(r.tokens);
  while (answer.finish == FinishReason::kNone) {
    std::vector<float> logits = FakeForward::Logits(numbers.back(), vocab);
    const Sampled s = Sample(logits, r.sampling, {r.sampling.seed, choice, state.position}, state.generated, &state.counts);
    state.Append(s.token);
    answer.tokens.push_back(s.token);
    answer.logprobs.push_back(s.logprob);
    answer.finish = FinishAfter(r.sampling, s.token, state.generated);
    numbers.push_back(FakeForward::Number(numbers, s.token));
  }
  return answer;
}

}  // namespace sluice::engine
