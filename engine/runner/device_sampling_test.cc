// Tasks sampled by a device, here a plain loop over what it is told, against SampleRows on the same logits.
#include "engine/runner/device_sampling.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

constexpr int kVocab = 50;

// What kernels/sampling.h says of a row.
void SampleAsTold(const kernels::SampleBatch& batch, const std::vector<float>& logits) {
  for (size_t row = 0; row < batch.rows.size(); ++row) {
    const kernels::SampleRow& of = batch.rows[row];
    if (of.kind == kernels::SampleKind::kHost) continue;
    const std::span<const float> raw = std::span(logits).subspan(row * kVocab, kVocab);
    std::vector<float> x(raw.begin(), raw.end());
    std::vector<bool> seen(kVocab, false);
    for (const kernels::LogitEdit& edit : batch.edits.subspan(size_t(of.first_edit), size_t(of.num_edits))) {
      ASSERT_FALSE(seen[size_t(edit.id)]) << "twice";
      seen[size_t(edit.id)] = true;
      float& logit = x[size_t(edit.id)];
      logit += edit.bias;
      if (edit.count >= 0) {
        double y =
            logit > 0 ? double(logit) / double(of.repetition_penalty) : double(logit) * double(of.repetition_penalty);
        if (edit.count > 0) y -= double(of.frequency_penalty) * edit.count + double(of.presence_penalty);
        logit = float(y);
      }
      if (edit.masked != 0) logit = -std::numeric_limits<float>::infinity();
    }
    int32_t token = of.token;
    bool any = false;
    for (float logit : x) any |= logit > -std::numeric_limits<float>::infinity();
    if (of.kind == kernels::SampleKind::kDraw && any) {
      const SamplingParams plain{
          .temperature = of.temperature, .top_p = of.top_p, .top_k = of.top_k, .min_p = of.min_p};
      token = Sample(x, plain, {of.seed, int(of.choice), int(of.position)}, 0).token;
    }
    std::vector<float> copy(raw.begin(), raw.end());
    const Sampled score = Score(copy, token, std::max(of.logprobs, 0));
    batch.tokens[row] = {token, of.logprobs >= 0 ? score.logprob : 0.0f};
    for (size_t i = 0; i < score.top.size(); ++i) {
      batch.tops[size_t(of.first_top) + i] = {score.top[i].first, score.top[i].second};
    }
  }
}

SampleTask RandomTask(std::mt19937& random) {
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  SampleTask task;
  for (int i = below(3); i > 0; --i) task.targets.push_back(below(kVocab));
  task.target_logprobs = below(4);
  task.samples = below(4) > 0;
  SamplingParams p{.temperature = below(2) == 0 ? 0.0f : 1.0f,
                   .top_k = below(2) == 0 ? 0 : 1 + below(kVocab),
                   .repetition_penalty = below(2) == 0 ? 1.0f : 1.5f,
                   .presence_penalty = below(2) == 0 ? 0.0f : 0.5f,
                   .frequency_penalty = below(2) == 0 ? 0.0f : 0.25f,
                   .seed = random(),
                   .logprobs = below(5) - 1,
                   .max_tokens = 40,
                   .min_tokens = below(8)};
  for (int id = -1; id < kVocab + 4; id += 1 + below(30)) {
    if (below(2) == 0) p.logit_bias.emplace_back(id, float(below(9) - 4));
  }
  for (int i = below(4); i > 0; --i) p.stop_ids.push_back(below(kVocab + 2) - 1);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(below(kVocab));
  task.states.push_back(std::make_shared<SampleState>(p, below(3), tokens, 16));
  for (int i = below(4); task.samples && i > 0; --i) task.drafts.push_back(below(3));
  if (task.drafts.empty() && below(6) == 0) {
    task.states.push_back(std::make_shared<SampleState>(p, 7, tokens, 16));
  }
  return task;
}

SampleTask CopyOf(const SampleTask& task) {
  SampleTask copy = task;
  for (auto& state : copy.states) state = std::make_shared<SampleState>(*state);
  return copy;
}

void ExpectEqual(const std::vector<Sampled>& got, const std::vector<Sampled>& want, int seed) {
  ASSERT_EQ(got.size(), want.size()) << "seed " << seed;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].token, want[i].token) << "seed " << seed;
    ASSERT_EQ(got[i].logprob, want[i].logprob) << "seed " << seed;
    ASSERT_EQ(got[i].top, want[i].top) << "seed " << seed;
  }
}

TEST(DeviceSampling, TasksHaveTheResultsOfTheHost) {
  int on_device = 0, held = 0;
  for (int seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(uint32_t(seed) + 1);
    DeviceSampling device({.rows = 20, .edits = 200, .tops = 3}, kVocab);
    std::vector<SampleTask> tasks;
    std::vector<bool> taken;
    size_t rows = 0;
    for (int i = 0; i < 4; ++i) {
      tasks.push_back(RandomTask(random));
      taken.push_back(device.AddTask(tasks.back(), DraftRule::kEquality));
      if (tasks.back().samples && tasks.back().states.size() > 1) {
        ASSERT_FALSE(taken.back());
      }
      on_device += taken.back();
      rows += NumLogits(tasks.back());
    }
    std::vector<float> logits(rows * kVocab);
    for (float& x : logits) x = float(random() % 400) / 50.0f - 4.0f;
    for (size_t row = 0; row < rows; ++row) logits[row * kVocab + random() % 3] = 5.0f;  // so that drafts hold at times
    const kernels::SampleBatch& batch = device.batch();
    ASSERT_EQ(batch.rows.size(), rows);
    SampleAsTold(batch, logits);
    size_t row = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const size_t count = NumLogits(tasks[i]);
      const SampleTask copy = CopyOf(tasks[i]);
      std::vector<float> own(logits.begin() + std::ptrdiff_t(row * kVocab),
                             logits.begin() + std::ptrdiff_t((row + count) * kVocab));
      if (taken[i]) {
        const SampleResult want = SampleRows(copy, own, kVocab), got = device.TakenTask(tasks[i], row);
        ExpectEqual(got.scored, want.scored, seed);
        ExpectEqual(got.tokens, want.tokens, seed);
        ASSERT_EQ(tasks[i].states[0]->position, copy.states[0]->position);
        ASSERT_EQ(tasks[i].states[0]->last_token, copy.states[0]->last_token);
        ASSERT_EQ(tasks[i].states[0]->counts.occurrences(), copy.states[0]->counts.occurrences());
        held += want.tokens.size() > 1;
      } else {
        for (size_t r = row; r < row + count; ++r) ASSERT_EQ(batch.rows[r].kind, kernels::SampleKind::kHost);
      }
      row += count;
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(on_device, 4000);
  EXPECT_GT(held, 300);
}

TEST(DeviceSampling, LeavesTheClassicRuleToTheHost) {
  DeviceSampling device({.rows = 20, .edits = 200, .tops = 3}, kVocab);
  SampleTask task{.drafts = {1, 2}, .samples = true};
  task.states.push_back(std::make_shared<SampleState>(SamplingParams{}, 0, std::vector<int32_t>{1}, 1));
  EXPECT_FALSE(device.AddTask(task, DraftRule::kRejection));
  EXPECT_TRUE(device.AddTask(task, DraftRule::kEquality));
  task.drafts.clear();
  EXPECT_TRUE(device.AddTask(task, DraftRule::kRejection));
  EXPECT_EQ(device.batch().rows.size(), 7u);
}

// A task that has no room leaves no traces.
TEST(DeviceSampling, WhatHasNoRoomIsTheHosts) {
  DeviceSampling device({.rows = 4, .edits = 3, .tops = 2}, kVocab);
  SampleTask task{.targets = {3}, .target_logprobs = 2, .samples = true};
  const SamplingParams bias{.logit_bias = {{1, 1.0f}, {2, 1.0f}}};
  task.states.push_back(std::make_shared<SampleState>(bias, 0, std::vector<int32_t>{1}, 1));
  EXPECT_TRUE(device.AddTask(task, DraftRule::kEquality));
  EXPECT_FALSE(device.AddTask(task, DraftRule::kEquality)) << "edits";
  EXPECT_EQ(device.batch().rows.size(), 4u);
  EXPECT_EQ(device.batch().edits.size(), 2u);
  EXPECT_EQ(device.batch().tops.size(), 2u);
  EXPECT_FALSE(device.AddTask({.targets = {3}}, DraftRule::kEquality)) << "rows";
}

}  // namespace
}  // namespace sluice::engine
