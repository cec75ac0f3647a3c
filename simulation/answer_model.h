// Which tokens follow a prompt: a chain in which each token depends on the prompt, the seed, the choice, the position
// and all tokens before, so that a wrong, missing or repeated one, and a replay that starts from the wrong tokens, give
// an answer that whoever knows the request can tell from the right one.
#pragma once

#include <cstdint>

#include "proto/worker.pb.h"
#include "simulation/rng.h"

namespace sluice::simulation {

namespace pb = ::sluice::v1;

inline constexpr int32_t kEos = 2;

class AnswerModel {
 public:
  AnswerModel() = default;
  // Of one choice (numbered from the request's first), before any of its tokens.
  AnswerModel(const pb::SequenceSpec& spec, int choice)
      : ends_(!spec.sampling().ignore_eos()), least_(spec.sampling().min_tokens()) {
    chain_ = Mix(spec.sampling().seed(), uint64_t(choice));
    // A few tokens stand for the whole prompt: prompts are long.
    const int prompt = spec.num_prompt_tokens();
    chain_ = Mix(chain_, uint64_t(prompt));
    for (int i = 0; i < 8; ++i) chain_ = Mix(chain_, uint64_t(spec.tokens(int(int64_t(prompt - 1) * i / 7))));
  }

  int32_t Next() const {
    const uint64_t draw = Mix(chain_, uint64_t(position_));
    if (ends_ && position_ >= least_ && draw % 37 == 0) return kEos;
    return int32_t(100 + draw % 30000);
  }
  void Take(int32_t token) {
    chain_ = Mix(chain_, uint64_t(token));
    ++position_;
    last_ = token;
  }
  int position() const { return position_; }
  int32_t last() const { return last_; }  // token

 private:
  uint64_t chain_ = 0;
  int position_ = 0;
  int32_t last_ = 0;
  bool ends_ = true;
  int least_ = 0;
};

}  // namespace sluice::simulation
