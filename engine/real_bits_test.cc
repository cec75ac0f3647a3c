// The promise of the engine on a real model: an answer's tokens and log-probabilities are, bit for bit, a function of
// the request alone. Prompts end one before, at and one after a block boundary; each thing that must not matter is
// changed alone, against every request computed alone. The full cross of them, on tiny models, is same_bits_test.cc.
//
// Needs the model: SLUICE_TEST_MODEL names the GGUF file, else the tests are skipped. By default six short prompts
// (half a minute); with SLUICE_TEST_FULL=1 twenty-four of up to 2,001 tokens (minutes).
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "engine/speculation/prompt_lookup_drafter.h"
#include "engine/testing/answers.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

constexpr int kBlock = 16, kAnswer = 8, kChoices = 3;

const char* Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool Full() {
  return std::string(Env("SLUICE_TEST_FULL")) == "1";
}

std::vector<int> PromptLengths() {
  if (!Full()) return {15, 16, 17, 31, 33, 80};
  std::vector<int> lengths;
  for (const int k : {1, 2, 4, 8, 16, 32, 64, 125}) {
    for (const int d : {-1, 0, 1}) lengths.push_back(k * kBlock + d);
  }
  return lengths;
}

// Real text: all golden prompts in a row, again and again.
std::vector<int32_t> TextTokens() {
  std::ifstream stream("tests/golden/golden_smollm2.json");
  std::vector<int32_t> text;
  const nlohmann::json golden = nlohmann::json::parse(stream);
  for (const auto& prompt : golden["prompts"]) {
    const auto ids = prompt["ids_hf"].get<std::vector<int32_t>>();
    text.insert(text.end(), ids.begin(), ids.end());
  }
  return text;
}

class RealBits : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (*Env("SLUICE_TEST_MODEL") == '\0') return;
    auto file = OpenModel(Env("SLUICE_TEST_MODEL"));
    ASSERT_TRUE(file.ok()) << file.status();
    auto backend = kernels::NewCpuBackend({.threads = 2, .compute = kernels::CpuCompute::kInt8});
    ASSERT_TRUE(backend.ok()) << backend.status();
    file_ = file->release();
    backend_ = backend->release();
    requests_ = new std::vector<EngineRequest>(MakeRequests());
    std::unique_ptr<Engine> engine = NewEngine({});
    alone_ = new Answers(RunAlone(*engine, *requests_));
  }
  static void TearDownTestSuite() {
    delete alone_;
    delete requests_;
    delete backend_;
    delete file_;
  }
  void SetUp() override {
    if (*Env("SLUICE_TEST_MODEL") == '\0') GTEST_SKIP() << "SLUICE_TEST_MODEL is not set";
    ASSERT_NE(alone_, nullptr);
  }

  // Greedy and drawn in turns; those that are drawn differ from each other by seed and text.
  static std::vector<EngineRequest> MakeRequests() {
    const std::vector<int32_t> text = TextTokens();
    const std::vector<int> lengths = PromptLengths();
    std::vector<EngineRequest> requests;
    for (size_t i = 0; i < lengths.size(); ++i) {
      EngineRequest r;
      r.id = i + 1;
      for (int t = 0; t < lengths[i]; ++t) r.tokens.push_back(text[(i * 97 + size_t(t)) % text.size()]);
      r.num_prompt_tokens = lengths[i];
      r.may_wait = true;
      r.sampling.max_tokens = kAnswer;
      r.sampling.logprobs = 20;
      r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      r.sampling.top_p = i % 4 == 3 ? 0.9f : 1.0f;
      r.sampling.repetition_penalty = i % 6 == 5 ? 1.2f : 1.0f;
      r.sampling.seed = 4000 + i;
      requests.push_back(std::move(r));
    }
    return requests;
  }

  static std::unique_ptr<Engine> NewEngine(const std::function<void(EngineOptions&)>& change) {
    EngineOptions o;
    o.block_size = kBlock;
    o.max_context = 2048;
    for (const EngineRequest& r : *requests_) {
      o.num_blocks += kernels::BlocksFor(int(r.tokens.size()) + kAnswer, kBlock) + kChoices;
    }
    if (change) change(o);
    auto engine = Engine::Create(*file_, *backend_, o);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static void Drain(Engine& engine, Answers& answers, int ahead = 1) {
    Stepper stepper(&engine, ahead);
    while (stepper.busy()) {
      for (const TokenOutput& out : stepper.Step()) Take(out, answers);
    }
    EXPECT_EQ(engine.stats().blocks_free, engine.stats().blocks_total);
    EXPECT_EQ(stepper.overlapped() > 0, ahead > 1);
  }

  static Answers RunAlone(Engine& engine, const std::vector<EngineRequest>& requests) {
    Answers answers;
    for (const EngineRequest& r : requests) {
      EXPECT_TRUE(engine.Add(r).ok());
      Drain(engine, answers);
    }
    return answers;
  }

  static Answers RunTogether(Engine& engine, int ahead = 1) {
    for (const EngineRequest& r : *requests_) EXPECT_TRUE(engine.Add(r).ok());
    Answers answers;
    Drain(engine, answers, ahead);
    return answers;
  }

  static void Compare(const Answers& answers, const Answers& alone) {
    EXPECT_EQ(answers.size(), alone.size());
    for (const auto& [key, answer] : answers) {
      ASSERT_EQ(alone.count(key), 1u);
      SCOPED_TRACE(testing::Message() << "prompt of " << requests_->at(key.first - 1).num_prompt_tokens
                                      << " tokens, choice " << key.second);
      EXPECT_EQ(answer.tokens, alone.at(key).tokens);
      EXPECT_TRUE(answer == alone.at(key)) << "log-probabilities differ";
    }
  }

  static ModelFile* file_;
  static kernels::Backend* backend_;
  static std::vector<EngineRequest>* requests_;
  static Answers* alone_;
};

ModelFile* RealBits::file_ = nullptr;
kernels::Backend* RealBits::backend_ = nullptr;
std::vector<EngineRequest>* RealBits::requests_ = nullptr;
Answers* RealBits::alone_ = nullptr;

TEST_F(RealBits, TheAnswersDifferAndAreWhole) {
  std::set<std::vector<int32_t>> distinct;
  for (const auto& [key, answer] : *alone_) {
    distinct.insert(answer.tokens);
    EXPECT_EQ(answer.tokens.size(), size_t(kAnswer));
    EXPECT_EQ(answer.bits.size(), size_t(kAnswer) * 41);
  }
  EXPECT_GE(distinct.size(), alone_->size() * 3 / 4) << "answers that are all alike test nothing";
}

TEST_F(RealBits, Batch) {
  for (const int seqs : {3, 64}) {
    SCOPED_TRACE(seqs);
    auto engine = NewEngine([&](EngineOptions& o) { o.scheduler.max_step_seqs = seqs; });
    Compare(RunTogether(*engine), *alone_);
    EXPECT_LT(engine->stats().steps, requests_->size() * (kAnswer + 1)) << "nothing ran together";
  }
}

TEST_F(RealBits, Chunk) {
  for (const int tokens : Full() ? std::vector{7, 100} : std::vector{7}) {
    SCOPED_TRACE(tokens);
    auto engine = NewEngine([&](EngineOptions& o) { o.scheduler.max_step_tokens = tokens; });
    Compare(RunAlone(*engine, *requests_), *alone_);
  }
}

TEST_F(RealBits, WarmCache) {
  auto engine = NewEngine([](EngineOptions& o) { o.prefix_caching = true; });
  Compare(RunAlone(*engine, *requests_), *alone_);
  const uint64_t cold = engine->stats().prefix.hit_tokens;
  Compare(RunAlone(*engine, *requests_), *alone_);
  uint64_t full_blocks = 0;  // of each prompt without its last token, which is always computed
  for (const EngineRequest& r : *requests_) full_blocks += uint64_t((r.num_prompt_tokens - 1) / kBlock);
  EXPECT_GE(engine->stats().prefix.hit_tokens - cold, full_blocks * kBlock);
}

// The pool holds one answer and no more. When a request has some tokens, a more urgent one of the same length arrives,
// whose salt keeps it from sharing blocks: each request is preempted once and each answer computed twice.
TEST_F(RealBits, Preemption) {
  Answers answers;
  for (const EngineRequest& r : *requests_) {
    const int length = int(r.tokens.size()) + kAnswer;
    auto engine = NewEngine([&](EngineOptions& o) {
      o.num_blocks = kernels::BlocksFor(length, kBlock) + 1;
      o.max_context = length;
      o.prefix_caching = true;
    });
    EngineRequest late = r, urgent = r;
    late.priority = 1;
    late.headroom_tokens = 1;
    urgent.id += 1000;
    urgent.cache_salt = "another tenant";
    Answers both;
    ASSERT_TRUE(engine->Add(late).ok());
    while (both[{late.id, 0}].tokens.size() < 3) {
      auto outputs = engine->Step();
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (const TokenOutput& out : *outputs) Take(out, both);
    }
    ASSERT_TRUE(engine->Add(urgent).ok());
    Drain(*engine, both);
    EXPECT_EQ(engine->stats().preemptions, 1u);
    EXPECT_TRUE((both[{urgent.id, 0}] == both[{late.id, 0}])) << "prompt of " << r.num_prompt_tokens << " tokens";
    answers[{r.id, 0}] = both[{late.id, 0}];
  }
  Compare(answers, *alone_);
}

TEST_F(RealBits, OverlappingSteps) {
  auto engine = NewEngine({});
  Compare(RunTogether(*engine, Engine::kMaxStepsUnderWay), *alone_);
}

TEST_F(RealBits, Drafts) {
  auto engine = NewEngine([](EngineOptions& o) {
    o.scheduler.max_drafts = 4;
    o.scheduler.max_step_logits = o.scheduler.max_step_seqs + 32;
    o.new_drafter = [] {
      return std::make_unique<PromptLookupDrafter>(PromptLookupOptions{.min_ngram = 1, .row_cost = 0.01});
    };
  });
  Compare(RunAlone(*engine, *requests_), *alone_);
  EXPECT_GE(engine->stats().accepted_drafts, Full() ? 20u : 2u);
  EXPECT_GT(engine->stats().drafted, engine->stats().accepted_drafts) << "none was ever refused";
  std::cout << engine->stats().accepted_drafts << " of " << engine->stats().drafted << " drafts accepted\n";
}

// The prompts on one engine, the answers on another, which gets copies of the blocks.
TEST_F(RealBits, Split) {
  auto prefill = NewEngine({}), decode = NewEngine({});
  Answers answers;
  for (EngineRequest r : *requests_) {
    r.may_wait = false;
    r.awaiting_kv = true;
    ASSERT_TRUE(decode->Add(r).ok());
    r.awaiting_kv = false;
    r.park_after_first = true;
    ASSERT_TRUE(prefill->Add(r).ok());
  }
  while (prefill->has_work()) {
    auto outputs = prefill->Step();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (const TokenOutput& out : *outputs) {
      Take(out, answers);
      CopyKv(*prefill, *decode, out.id);
      ASSERT_TRUE(prefill->Cancel(out.id));
      ASSERT_TRUE(decode->Activate(out.id, out.sampled.token).ok());
    }
    auto decoded = decode->Step();
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    for (const TokenOutput& out : *decoded) Take(out, answers);
  }
  Drain(*decode, answers);
  Compare(answers, *alone_);
  EXPECT_EQ(prefill->stats().blocks_free, prefill->stats().blocks_total);
}

// Several choices of one request against each of them as a request of its own.
TEST_F(RealBits, Choices) {
  auto engine = NewEngine([](EngineOptions& o) { o.scheduler.max_step_seqs = 64; });
  std::vector<EngineRequest> forked;
  for (const EngineRequest& r : *requests_) {
    if (r.sampling.temperature > 0 || !Full()) forked.push_back(r);
  }
  Answers alone, answers;
  for (EngineRequest r : forked) {
    alone[{r.id, 0}] = alone_->at({r.id, 0});
    for (r.choice = 1; r.choice < kChoices; ++r.choice) {
      ASSERT_TRUE(engine->Add(r).ok());
      Drain(*engine, alone);
    }
  }
  for (EngineRequest& r : forked) {
    r.n = kChoices;
    ASSERT_TRUE(engine->Add(r).ok());
  }
  Drain(*engine, answers);
  Compare(answers, alone);
  EXPECT_GT(engine->stats().block_copies, 0u);
  std::set<std::vector<int32_t>> distinct;
  for (int c = 0; c < kChoices; ++c) distinct.insert(answers.at({2, c}).tokens);
  EXPECT_GT(distinct.size(), 1u) << "drawn choices are all the same";
}

}  // namespace
}  // namespace sluice::engine
