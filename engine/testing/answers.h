// For tests that compare whole answers bit for bit: what an answer was, an engine that steps as it is told to, and the
// hand-over of a request's blocks from one engine to another.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "gtest/gtest.h"

namespace sluice::engine {

// Tokens, and the bits of the log-probabilities that were reported with each of them.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> bits;
  FinishReason finish = FinishReason::kNone;

  bool operator==(const Answer&) const = default;
};
using Answers = std::map<std::pair<uint64_t, int>, Answer>;  // by request and choice

inline void Take(const TokenOutput& out, Answers& answers) {
  Answer& answer = answers[{out.id, out.choice}];
  EXPECT_EQ(out.index, int(answer.tokens.size())) << "request " << out.id << " choice " << out.choice;
  answer.tokens.push_back(out.sampled.token);
  answer.bits.push_back(std::bit_cast<uint32_t>(out.sampled.logprob));
  for (const auto& [id, logprob] : out.sampled.top) {
    answer.bits.push_back(uint32_t(id));
    answer.bits.push_back(std::bit_cast<uint32_t>(logprob));
  }
  answer.finish = out.finish;
}

// Plans up to `ahead` steps (1: none overlap), then executes and commits one.
class Stepper {
 public:
  Stepper(Engine* engine, int ahead) : engine_(engine), ahead_(size_t(ahead)) {}

  std::vector<TokenOutput> Step() {
    while (under_way_.size() < ahead_) {
      std::unique_ptr<StepWork> step = engine_->Begin();
      if (step == nullptr) break;
      under_way_.push_back(std::move(step));
    }
    if (under_way_.empty()) return {};
    overlapped_ += under_way_.size() > 1 ? 1 : 0;
    EXPECT_TRUE(engine_->Execute(*under_way_.front()).ok());
    std::unique_ptr<StepWork> step = std::move(under_way_.front());
    under_way_.pop_front();
    return engine_->Commit(std::move(step));
  }
  bool busy() const { return engine_->has_work() || !under_way_.empty(); }
  int overlapped() const { return overlapped_; }  // steps that executed while a later one was planned

 private:
  Engine* const engine_;
  const size_t ahead_;
  std::deque<std::unique_ptr<StepWork>> under_way_;
  int overlapped_ = 0;
};

// Copies the blocks that `to` has not found in its own cache.
inline void CopyKv(Engine& from, Engine& to, uint64_t id) {
  const kernels::KvLayout& layout = from.kv_layout();
  const std::vector<int32_t> source = from.BlocksOf(id), target = to.BlocksOf(id);
  ASSERT_LE(target.size(), source.size());
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    for (size_t i = size_t(to.CachedTokensOf(id) / layout.block_size); i < target.size(); ++i) {
      memcpy(static_cast<std::byte*>(to.kv_layer_data(layer)) + layout.offset(target[i], 0, 0, 0),
             static_cast<const std::byte*>(from.kv_layer_data(layer)) + layout.offset(source[i], 0, 0, 0),
             layout.block_bytes());
    }
  }
}

}  // namespace sluice::engine
