#include "engine/runner/commit.h"

#include <glog/logging.h>

#include <utility>

namespace sluice::engine {
namespace {

class Committer {
 public:
  explicit Committer(SequenceTable& sequences) : sequences_(sequences) {}

  void Apply(const Chunk& c, const SampleResult& result) {
    Sequence& s = *c.sequence;
    if (c.samples) s.pending -= 1;
    if (s.removed || s.parked) return;
    const bool kept = c.recomputes == s.recomputes;  // else its blocks were taken away meanwhile
    if (kept) Advance(s, c);
    AddScores(s, c, result);
    if (!c.samples) return;
    if (c.forks) AddSiblings(s, result);
    AddTokens(s, result.tokens);
    if (!s.removed && !s.parked) Roll(s, c, result, kept);
  }

  StepOutput Take() { return std::move(out_); }

 private:
  void Advance(Sequence& s, const Chunk& c) {
    CHECK_EQ(s.computed, c.begin);
    s.computed += c.count;
    out_.progress.push_back({s.id, s.computed});
    sequences_.kv().StoreComputed(s);
  }

  // True whatever became of the blocks; after a recompute they may come twice.
  static void AddScores(Sequence& s, const Chunk& c, const SampleResult& result) {
    for (size_t i = 0; i < result.scored.size(); ++i) {
      if (size_t(c.score_begin) + i == s.scored.size()) s.scored.push_back(result.scored[i]);
    }
  }

  // Of a request that parks nothing runs on: its choices are tokens only.
  void AddSiblings(Sequence& s, const SampleResult& result) {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < result.siblings.size(); ++i) {
      const Sampled& sampled = result.siblings[i];
      tokens.push_back(sampled.token);
      TokenOutput& token = out_.tokens.emplace_back();
      token.id = s.id;
      token.choice = s.siblings[i]->choice;
      token.sampled = sampled;
      token.cached_tokens = s.hit_tokens;
      token.finish = FinishAfter(s.sampling(), sampled.token, 1);
    }
    if (!s.park_after_first) sequences_.Fork(s, tokens);
    // Choices that are over with their first token.
    for (size_t i = out_.tokens.size() - tokens.size(); i < out_.tokens.size() && !s.park_after_first; ++i) {
      TokenOutput& token = out_.tokens[i];
      if (token.finish != FinishReason::kNone) token.last = sequences_.FinishChoice(s.id, token.choice);
    }
  }

  void AddTokens(Sequence& s, const std::vector<Sampled>& tokens) {
    for (const Sampled& sampled : tokens) {
      TokenOutput& token = out_.tokens.emplace_back();
      token.id = s.id;
      token.choice = s.choice;
      token.index = s.generated();
      token.sampled = sampled;
      token.cached_tokens = s.hit_tokens;
      if (std::exchange(s.prompt_logprobs, -1) >= 0) token.prompt = std::exchange(s.scored, {});
      s.tokens.push_back(sampled.token);
      token.finish = FinishAfter(s.sampling(), sampled.token, s.generated());
      if (s.park_after_first) {
        sequences_.ParkSequence(s);
      } else if (token.finish != FinishReason::kNone) {
        token.last = sequences_.Finish(s);
        return;
      }
    }
  }

  // Accepted drafts are computed; what lies behind them is given up.
  void Roll(Sequence& s, const Chunk& c, const SampleResult& result, bool kept) {
    if (c.drafts.empty()) return;
    const int accepted = int(result.tokens.size()) - 1;
    out_.accepted_drafts += uint64_t(accepted);
    s.drafter->Report(int(s.tokens.size()) - accepted - 1, int(c.drafts.size()), accepted);
    if (!kept) return;
    s.verifying = false;
    s.computed = s.scheduled = int(s.tokens.size()) - 1;
    sequences_.kv().StoreComputed(s);
    sequences_.kv().Shrink(s, int(s.tokens.size()));
  }

  SequenceTable& sequences_;
  StepOutput out_;
};

}  // namespace

StepOutput Commit(const StepWork& step, SequenceTable& sequences) {
  CHECK_EQ(step.results.size(), step.plan.chunks.size());
  Committer committer(sequences);
  for (size_t i = 0; i < step.results.size(); ++i) committer.Apply(step.plan.chunks[i], step.results[i]);
  sequences.kv().StepDone(step.number);
  return committer.Take();
}

}  // namespace sluice::engine
