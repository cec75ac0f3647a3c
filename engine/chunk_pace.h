// How many tokens of prompts fit beside decode rows so that a step takes no longer than a target: learned from the steps
// themselves. Pure; the times come in as arguments. It decides when tokens are computed, never which.
//
// Model: a step takes what the last steps of decode rows alone took, and so much for each token of a prompt. Both follow
// the quickest steps seen lately, as a step that others interrupted says nothing of its tokens; the first one is scaled
// by the number of rows half-heartedly: a step of twice the rows takes less than twice as long.
//
// Limits: a prompt's later tokens cost more than its first ones (they attend to more). At least kLeast tokens are
// allowed, whatever the target, so that prompts always get on.
#pragma once

namespace sluice::engine {

class ChunkPace {
 public:
  static constexpr int kLeast = 32;

  // target > 0: seconds of a step that has decode rows. `first`: tokens until something was learned.
  ChunkPace(double target, int first) : target_(target), first_(first) {}

  // A step of so many decode rows and tokens of prompts took so long.
  void Report(int decode_rows, int chunk_tokens, double seconds);

  // Tokens of prompts beside `decode_rows` >= 1.
  int Tokens(int decode_rows) const;

 private:
  double DecodeSeconds(int rows) const;

  double target_;
  int first_;
  double decode_rows_ = 0, decode_seconds_ = 0;  // of steps without prompts; 0: none seen
  double token_seconds_ = 0;                     // 0: none seen
};

}  // namespace sluice::engine
