// An engine without a model, for tests: it keeps engine/engine.h's promises about blocks and order, and its tokens are
// a plain function of the request and the index.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "worker/engine_port.h"

namespace sluice::worker {

struct ScriptedEngineOptions {
  int num_blocks = 64;
  int block_size = 16;
  int context = 512;
  int prompt_per_step = 32;  // prompt tokens that a step computes of each request
  int stop_token = -1;       // a request ends where it draws this
  absl::Duration step_time;
};

class ScriptedEngine final : public EnginePort {
 public:
  explicit ScriptedEngine(const ScriptedEngineOptions& options = {}) : options_(options) {
    for (int block = options.num_blocks; block-- > 0;) free_.push_back(block);
  }

  static int32_t TokenAt(const std::vector<int32_t>& prompt, int index) { return (prompt[0] * 31 + index * 7) % 100; }

  absl::Status Add(engine::EngineRequest request) override {
    const int64_t tokens = request.num_prompt_tokens + int64_t{request.sampling.max_tokens};
    if (tokens > options_.context) return absl::InvalidArgumentError("sampling.max_tokens: over the context");
    const int blocks =
        kernels::BlocksFor(request.park_after_first ? int64_t(request.tokens.size()) : tokens, options_.block_size);
    if (blocks > options_.num_blocks) return absl::FailedPreconditionError("never fits");
    if (blocks > int(free_.size())) return absl::ResourceExhaustedError("no blocks now");
    Live& live = live_[request.id];
    for (int i = 0; i < blocks; ++i) live.blocks.push_back(TakeBlock());
    live.scheduled = !request.awaiting_kv;
    live.generated = int(request.tokens.size()) - request.num_prompt_tokens;
    live.request = std::move(request);
    return absl::OkStatus();
  }

  bool Cancel(uint64_t id) override {
    auto it = live_.find(id);
    if (it == live_.end()) return false;
    free_.insert(free_.end(), it->second.blocks.begin(), it->second.blocks.end());
    live_.erase(it);
    return true;
  }

  bool Park(uint64_t id) override {
    auto it = live_.find(id);
    if (it == live_.end()) return false;
    it->second.scheduled = it->second.request.awaiting_kv = false;
    return true;
  }

  int CachedTokensOf(uint64_t id) const override {
    auto it = live_.find(id);
    return it == live_.end() ? 0 : std::min(cached_tokens, int(it->second.request.tokens.size()) - 1);
  }

  absl::Status Activate(uint64_t id, std::span<const engine::FirstToken> firsts) override {
    auto it = live_.find(id);
    if (it == live_.end()) return absl::NotFoundError("no such request");
    Live& live = it->second;
    if (!live.request.awaiting_kv) return absl::FailedPreconditionError("awaits nothing");
    if (firsts.size() != 1 || firsts[0].choice != live.request.choice)
      return absl::InvalidArgumentError("not its choices");
    if (firsts[0].token < 0 || firsts[0].token >= 100) return absl::InvalidArgumentError("not a token");
    live.request.awaiting_kv = false;
    live.scheduled = true;
    live.computed = int(live.request.tokens.size());
    ++live.generated;
    return absl::OkStatus();
  }

  std::vector<int32_t> BlocksOf(uint64_t id) const override {
    auto it = live_.find(id);
    return it == live_.end() ? std::vector<int32_t>() : it->second.blocks;
  }

  const engine::EngineRequest& RequestOf(uint64_t id) const { return live_.at(id).request; }

  bool has_work() const override {
    return std::any_of(live_.begin(), live_.end(), [](const auto& live) { return live.second.scheduled; });
  }

  std::unique_ptr<engine::StepWork> Begin() override {
    return has_work() ? std::make_unique<engine::StepWork>() : nullptr;
  }

  absl::Status Execute(engine::StepWork&) override {
    if (fail_next_step) return absl::InternalError("the device fell off");
    absl::SleepFor(options_.step_time);
    return absl::OkStatus();
  }

  std::vector<engine::TokenOutput> Commit(std::unique_ptr<engine::StepWork>) override {
    ++steps_;
    std::vector<engine::TokenOutput> outputs;
    progress_.clear();
    for (auto& [id, live] : live_) {
      if (!live.scheduled) continue;
      const int prompt = int(live.request.tokens.size());
      live.computed =
          live.computed >= prompt ? live.computed + 1 : std::min(live.computed + options_.prompt_per_step, prompt);
      progress_.push_back({id, live.computed});
      if (live.computed >= prompt) outputs.push_back(NextToken(id, live));
    }
    for (const engine::TokenOutput& output : outputs) {
      if (live_.at(output.id).request.park_after_first) {
        Park(output.id);
      } else if (output.finish != engine::FinishReason::kNone) {
        Cancel(output.id);
      }
    }
    return outputs;
  }

  const std::vector<engine::SequenceProgress>& progress() const override { return progress_; }

  const engine::PrefixCache* prefix_cache() const override { return nullptr; }
  engine::EngineStats stats() const override {
    engine::EngineStats stats;
    stats.blocks_total = options_.num_blocks;
    stats.blocks_free = int(free_.size());
    for (const auto& [id, live] : live_) {
      if (live.scheduled) ++(live.computed > 0 ? stats.running : stats.waiting);
    }
    stats.steps = steps_;
    return stats;
  }

  std::atomic<bool> fail_next_step = false;
  int cached_tokens = 0;  // what the prefix cache would find of every request

 private:
  struct Live {
    engine::EngineRequest request;
    std::vector<int32_t> blocks;
    bool scheduled = true;
    int computed = 0;
    int generated = 0;
  };

  int32_t TakeBlock() {
    const int32_t block = free_.back();
    free_.pop_back();
    return block;
  }

  engine::TokenOutput NextToken(uint64_t id, Live& live) {
    engine::TokenOutput output;
    output.id = id;
    output.choice = live.request.choice;
    output.index = live.generated++;
    for (int i = 1; output.index == 0 && live.request.prompt_logprobs >= 0 && i < live.request.num_prompt_tokens; ++i) {
      engine::Sampled& scored = output.prompt.emplace_back();
      scored.token = live.request.tokens[size_t(i)];
      scored.logprob = -float(i);
      if (live.request.prompt_logprobs > 0) scored.top.emplace_back(7, -0.25f);
    }
    output.sampled.token = TokenAt(live.request.tokens, output.index);
    const int alternatives = live.request.sampling.logprobs;
    if (alternatives >= 0) output.sampled.logprob = -0.5f;
    for (int i = 0; i < alternatives; ++i) output.sampled.top.emplace_back(i, -1.0f - float(i));
    if (output.sampled.token == options_.stop_token) {
      output.finish = engine::FinishReason::kStop;
    } else if (live.generated == live.request.sampling.max_tokens) {
      output.finish = engine::FinishReason::kLength;
    }
    output.last = output.finish != engine::FinishReason::kNone;
    return output;
  }

  const ScriptedEngineOptions options_;
  std::vector<int32_t> free_;
  std::vector<engine::SequenceProgress> progress_;
  uint64_t steps_ = 0;
  std::map<uint64_t, Live> live_;
};

}  // namespace sluice::worker
