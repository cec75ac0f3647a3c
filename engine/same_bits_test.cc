// The promise of the engine: an answer's tokens and log-probabilities are, bit for bit, a function of the request alone.
// Here on tiny models the full cross of what must not matter: batch, chunk, cold or warm cache, preemption, overlapping
// steps, drafts, and one engine or prompts and answers on different ones.
#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/speculation/prompt_lookup_drafter.h"
#include "engine/testing/tiny_setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

// Tokens, and the bits of the log-probabilities of the whole vocabulary at each of them.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> bits;
  FinishReason finish = FinishReason::kNone;

  bool operator==(const Answer&) const = default;
};
using Answers = std::map<std::pair<uint64_t, int>, Answer>;  // by request and choice

struct Setting {
  int batch = 64;
  int chunk = 512;
  bool warm = false;
  bool scarce = false;  // blocks for little more than the longest request
  bool overlap = false;
  bool drafts = false;
  int pairs = 0;  // prefill and decode engines of each; 0: one engine does it all

  friend void PrintTo(const Setting& s, std::ostream* out) {
    *out << "batch " << s.batch << " chunk " << s.chunk << (s.warm ? " warm" : " cold") << (s.scarce ? " scarce" : "")
         << (s.overlap ? " overlap" : "") << (s.drafts ? " drafts" : "") << " pairs " << s.pairs;
  }
};

class Instance {
 public:
  Instance(const TinySetup& setup, const Setting& s) : overlap_(s.overlap) {
    EngineOptions o;
    o.block_size = TestCompute() != kernels::CpuCompute::kF32 ? 16 : 8;  // whole vectors of keys, as workers have them
    o.num_blocks = (s.scarce ? 26 : 1200) * 8 / o.block_size;
    o.scheduler.max_step_tokens = s.chunk;
    o.scheduler.max_step_seqs = std::min(s.batch, s.chunk);
    o.scheduler.max_step_logits = o.scheduler.max_step_seqs + 16;
    o.prefix_caching = s.warm;
    if (s.drafts) {
      o.scheduler.max_drafts = 4;
      o.new_drafter = [] {
        return std::make_unique<PromptLookupDrafter>(PromptLookupOptions{.min_ngram = 1, .row_cost = 0.01});
      };
    }
    auto engine = Engine::Create(*setup.file, *setup.backend, o);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  Engine& operator*() { return *engine_; }
  Engine* operator->() { return engine_.get(); }

  // Plans as far ahead as it may, then executes and commits one step.
  std::vector<TokenOutput> Step() {
    const size_t ahead = overlap_ ? Engine::kMaxStepsUnderWay : 1;
    while (under_way_.size() < ahead) {
      std::unique_ptr<StepWork> step = engine_->Begin();
      if (step == nullptr) break;
      under_way_.push_back(std::move(step));
    }
    if (under_way_.empty()) return {};
    EXPECT_TRUE(engine_->Execute(*under_way_.front()).ok());
    std::unique_ptr<StepWork> step = std::move(under_way_.front());
    under_way_.pop_front();
    return engine_->Commit(std::move(step));
  }
  bool busy() const { return engine_->has_work() || !under_way_.empty(); }

 private:
  bool overlap_;
  std::unique_ptr<Engine> engine_;
  std::deque<std::unique_ptr<StepWork>> under_way_;
};

void Take(const TokenOutput& out, Answers& answers) {
  Answer& answer = answers[{out.id, out.choice}];
  EXPECT_EQ(out.index, int(answer.tokens.size()));
  answer.tokens.push_back(out.sampled.token);
  for (const auto& [id, logprob] : out.sampled.top) {
    answer.bits.push_back(uint32_t(id));
    answer.bits.push_back(std::bit_cast<uint32_t>(logprob));
  }
  answer.finish = out.finish;
}

class SameBits : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setup_ = new TinySetup(MakeTinySetup({.heads = 6, .kv_heads = 2, .ffn = 320}));
    alone_ = new Answers;
    for (const EngineRequest& r : Requests()) {
      Instance one(*setup_, {.batch = 4});
      EXPECT_TRUE(one->Add(r).ok());
      while (one.busy()) {
        for (const TokenOutput& out : one.Step()) Take(out, *alone_);
      }
    }
  }
  static void TearDownTestSuite() {
    delete alone_;
    delete setup_;
  }

  // Block boundaries and odd lengths, greedy and sampled, penalties, several choices, repetitive prompts.
  static std::vector<EngineRequest> Requests() {
    const int vocab = setup_->file->config().vocab;
    const int lengths[] = {1, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 130};
    std::vector<EngineRequest> all;
    for (int i = 0; i < 16; ++i) {
      EngineRequest r;
      r.id = uint64_t(i) + 1;
      r.tokens = RandomTokens(lengths[i % 12], i % 4 == 1 ? 3 : vocab, uint64_t(7 + i / 2));
      r.num_prompt_tokens = int(r.tokens.size());
      r.n = i % 5 == 3 ? 3 : 1;
      r.priority = i % 3;
      r.may_wait = true;
      r.sampling.max_tokens = 3 + i % 4 * 5;
      r.sampling.logprobs = vocab - 1;
      r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      r.sampling.top_p = i % 4 == 3 ? 0.9f : 1.0f;
      r.sampling.repetition_penalty = i % 6 == 5 ? 1.2f : 1.0f;
      r.sampling.seed = uint64_t(1000 + i);
      all.push_back(std::move(r));
    }
    return all;
  }

  static Answers Run(const Setting& s, EngineStats* stats) {
    return s.pairs == 0 ? RunTogether(s, stats) : RunSplit(s, stats);
  }

  static Answers RunTogether(const Setting& s, EngineStats* stats) {
    Instance engine(*setup_, s);
    Answers answers;
    for (int round = 0; round < (s.warm ? 2 : 1); ++round) {
      answers.clear();
      std::vector<EngineRequest> requests = Requests();
      // The least urgent first and those after them late, so that blocks and places are taken away.
      if (s.scarce) {
        std::stable_sort(requests.begin(), requests.end(),
                         [](const EngineRequest& a, const EngineRequest& b) { return a.priority > b.priority; });
      }
      for (EngineRequest& r : requests) {
        if (r.n > std::min(s.batch, s.chunk)) continue;
        if (s.scarce) r.headroom_tokens = 1;
        EXPECT_TRUE(engine->Add(r).ok());
        for (int step = 0; s.scarce && step < 3 && engine.busy(); ++step) {
          for (const TokenOutput& out : engine.Step()) Take(out, answers);
        }
      }
      while (engine.busy()) {
        for (const TokenOutput& out : engine.Step()) Take(out, answers);
      }
    }
    *stats = engine->stats();
    EXPECT_EQ(stats->blocks_free, stats->blocks_total);
    return answers;
  }

  // Requests go to the engines in turns; each engine steps in turn, blocks are copied as soon as they are complete.
  static Answers RunSplit(const Setting& s, EngineStats* stats) {
    std::vector<std::unique_ptr<Instance>> prefill, decode;
    for (int i = 0; i < s.pairs; ++i) {
      prefill.push_back(std::make_unique<Instance>(*setup_, s));
      decode.push_back(std::make_unique<Instance>(*setup_, s));
    }
    Answers answers;
    for (int round = 0; round < (s.warm ? 2 : 1); ++round) {
      answers.clear();
      std::deque<EngineRequest> queue;
      for (const EngineRequest& r : Requests()) {
        if (r.n <= std::min(s.batch, s.chunk)) queue.push_back(r);
      }
      std::map<uint64_t, std::pair<Engine*, Engine*>> where;
      std::map<uint64_t, std::vector<FirstToken>> firsts;
      size_t turn = 0;
      for (bool busy = true; busy;) {
        while (!queue.empty()) {  // late binding: whoever has room
          Engine &p = **prefill[turn % prefill.size()], &d = **decode[turn / 2 % decode.size()];
          EngineRequest half = queue.front();
          half.may_wait = false;
          half.awaiting_kv = true;
          half.headroom_tokens = 1;
          if (!d.Add(half).ok()) break;
          half.awaiting_kv = false;
          half.park_after_first = true;
          if (!p.Add(half).ok()) {
            d.Cancel(half.id);
            break;
          }
          where[half.id] = {&p, &d};
          queue.pop_front();
          ++turn;
        }
        for (auto& p : prefill) {
          for (const TokenOutput& out : p->Step()) {
            Take(out, answers);
            if (out.finish == FinishReason::kNone) firsts[out.id].push_back({out.choice, out.sampled.token});
            if (out.choice == 0) HandOver(out.id, where.at(out.id), firsts[out.id]);
          }
        }
        busy = !queue.empty();
        for (auto& d : decode) {
          for (const TokenOutput& out : d->Step()) Take(out, answers);
          busy |= d->busy();
        }
        for (auto& p : prefill) busy |= p->busy();
      }
    }
    for (auto* side : {&prefill, &decode}) {
      for (auto& instance : *side) {
        *stats = (*instance)->stats();
        EXPECT_EQ(stats->blocks_free, stats->blocks_total);
      }
    }
    return answers;
  }

  static void HandOver(uint64_t id, std::pair<Engine*, Engine*> pair, const std::vector<FirstToken>& firsts) {
    auto [p, d] = pair;
    const kernels::KvLayout& layout = p->kv_layout();
    const std::vector<int32_t> from = p->BlocksOf(id), to = d->BlocksOf(id);
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      for (size_t i = size_t(d->CachedTokensOf(id) / layout.block_size); i < to.size(); ++i) {
        memcpy(static_cast<std::byte*>(d->kv_layer_data(layer)) + layout.offset(to[i], 0, 0, 0),
               static_cast<const std::byte*>(p->kv_layer_data(layer)) + layout.offset(from[i], 0, 0, 0),
               layout.block_bytes());
      }
    }
    EXPECT_TRUE(p->Cancel(id));
    if (firsts.empty()) {
      EXPECT_TRUE(d->Cancel(id));
    } else {
      EXPECT_TRUE(d->Activate(id, firsts).ok());
    }
  }

  static void Compare(const Answers& answers, int batch, int chunk) {
    size_t expected = 0;
    for (const EngineRequest& r : Requests()) expected += r.n <= std::min(batch, chunk) ? size_t(r.n) : 0;
    EXPECT_EQ(answers.size(), expected);
    for (const auto& [key, answer] : answers) {
      const Answer& alone = alone_->at(key);
      EXPECT_EQ(answer.tokens, alone.tokens) << "request " << key.first << " choice " << key.second;
      EXPECT_TRUE(answer == alone) << "bits of request " << key.first << " choice " << key.second;
    }
  }

  static TinySetup* setup_;
  static Answers* alone_;
};

TinySetup* SameBits::setup_ = nullptr;
Answers* SameBits::alone_ = nullptr;

TEST_F(SameBits, TheAnswersDiffer) {
  std::set<std::vector<int32_t>> distinct;
  for (const auto& [key, answer] : *alone_) distinct.insert(answer.tokens);
  EXPECT_GE(distinct.size(), 18u) << "answers that are all alike test nothing";
  std::set<std::vector<int32_t>> choices;
  for (int c = 0; c < 3; ++c) choices.insert(alone_->at({9, c}).tokens);
  EXPECT_EQ(choices.size(), 1u) << "greedy choices are the same";
  choices.clear();
  for (int c = 0; c < 3; ++c) choices.insert(alone_->at({14, c}).tokens);
  EXPECT_GE(choices.size(), 2u) << "drawn ones are not";
}

TEST_F(SameBits, WhateverTheSetting) {
  uint64_t preemptions = 0, hits = 0, accepted = 0, copies = 0;
  int settings = 0;
  for (const int batch : {1, 3, 64}) {
    for (const int chunk : {7, 16, 512}) {
      for (int bits = 0; bits < 16; ++bits) {
        for (const int pairs : {0, 1, 2}) {
          const Setting s{.batch = batch,
                          .chunk = chunk,
                          .warm = (bits & 1) != 0,
                          .scarce = (bits & 2) != 0,
                          .overlap = (bits & 4) != 0,
                          .drafts = (bits & 8) != 0,
                          .pairs = pairs};
          SCOPED_TRACE(testing::PrintToString(s));
          EngineStats stats;
          Compare(Run(s, &stats), batch, chunk);
          if (HasFailure()) return;
          if (s.scarce && s.pairs == 0) {
            EXPECT_GT(stats.preemptions, 0u);
          }
          ++settings;
          preemptions += stats.preemptions, hits += stats.prefix.hit_tokens, accepted += stats.accepted_drafts;
          copies += stats.block_copies;
        }
      }
    }
  }
  EXPECT_EQ(settings, 3 * 3 * 16 * 3);
  EXPECT_GT(preemptions, 100u);
  EXPECT_GT(hits, 1000u);
  EXPECT_GT(accepted, 100u);
  EXPECT_GT(copies, 100u);
}

// The same with steps that execute in a thread of their own (run this one under TSan).
TEST_F(SameBits, WithAnExecutingThread) {
  Instance engine(*setup_, {.batch = 8, .chunk = 16, .warm = true, .drafts = true});
  for (const EngineRequest& r : Requests()) ASSERT_TRUE(engine->Add(r).ok());
  Answers answers;
  std::deque<std::unique_ptr<StepWork>> under_way;
  while (engine->has_work() || !under_way.empty()) {
    if (under_way.empty()) under_way.push_back(engine->Begin());
    ASSERT_NE(under_way.front(), nullptr);
    std::thread executes([&, step = under_way.front().get()] { EXPECT_TRUE(engine->Execute(*step).ok()); });
    if (auto next = engine->Begin()) under_way.push_back(std::move(next));
    executes.join();
    auto step = std::move(under_way.front());
    under_way.pop_front();
    for (const TokenOutput& out : engine->Commit(std::move(step))) Take(out, answers);
  }
  Compare(answers, 8, 16);
}

}  // namespace
}  // namespace sluice::engine
