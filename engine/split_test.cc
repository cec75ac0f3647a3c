// An answer that two engines share: one computes the prompt and the first token, its blocks are copied, the other goes
// on from the second token. The same tokens and bits as one engine alone.
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/tiny_setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

constexpr int kBlock = 16;

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> bits;  // of the log-probabilities
  FinishReason finish = FinishReason::kNone;

  bool operator==(const Answer&) const = default;
};

void Append(const TokenOutput& out, Answer& answer) {
  EXPECT_EQ(out.index, int(answer.tokens.size())) << "request " << out.id;
  answer.tokens.push_back(out.sampled.token);
  answer.bits.push_back(std::bit_cast<uint32_t>(out.sampled.logprob));
  for (const auto& [id, logprob] : out.sampled.top) {
    answer.bits.push_back(uint32_t(id));
    answer.bits.push_back(std::bit_cast<uint32_t>(logprob));
  }
  answer.finish = out.finish;
}

EngineRequest Request(uint64_t id, int prompt, int max_tokens, int vocab) {
  EngineRequest r;
  r.id = id;
  r.tokens = RandomTokens(prompt, vocab, 50 + id);
  r.num_prompt_tokens = prompt;
  r.sampling.max_tokens = max_tokens;
  r.sampling.logprobs = 3;
  r.sampling.temperature = id % 2 == 0 ? 0.0f : 0.9f;
  r.sampling.seed = 7 * id;
  return r;
}

class SplitTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { setup_ = new TinySetup(MakeTinySetup({})); }
  static void TearDownTestSuite() { delete setup_; }
  void SetUp() override { ASSERT_TRUE(setup_->file && setup_->backend); }

  static std::unique_ptr<Engine> NewEngine(int chunk = 512, int num_blocks = 128) {
    auto engine =
        Engine::Create(*setup_->file, *setup_->backend,
                       {.block_size = kBlock, .num_blocks = num_blocks, .scheduler = {chunk, std::min(chunk, 16)}});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  static int vocab() { return setup_->file->config().vocab; }

  static void StepInto(Engine& engine, std::map<uint64_t, Answer>& answers) {
    auto outputs = engine.Step();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (const TokenOutput& out : *outputs) Append(out, answers[out.id]);
  }

  static Answer Alone(const EngineRequest& request) {
    auto engine = NewEngine();
    EXPECT_TRUE(engine->Add(request).ok());
    std::map<uint64_t, Answer> answers;
    while (engine->has_work()) StepInto(*engine, answers);
    return answers[request.id];
  }

  static void CopyBlocks(Engine& from, const std::vector<int32_t>& source, Engine& to,
                         const std::vector<int32_t>& target) {
    const kernels::KvLayout& layout = from.kv_layout();
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      for (size_t i = 0; i < source.size(); ++i) {
        memcpy(static_cast<std::byte*>(to.kv_layer_data(layer)) + layout.offset(target[i], 0, 0, 0),
               static_cast<const std::byte*>(from.kv_layer_data(layer)) + layout.offset(source[i], 0, 0, 0),
               layout.block_bytes());
      }
    }
  }

  static TinySetup* setup_;
};

TinySetup* SplitTest::setup_ = nullptr;

// Several at once: while some decode, the prompts of others still come in.
TEST_F(SplitTest, TwoEnginesGiveTheBitsOfOne) {
  const int lengths[] = {1, 3 * kBlock - 1, 3 * kBlock, 3 * kBlock + 1, kBlock - 1, kBlock, kBlock + 1, 70, 129};
  std::map<uint64_t, EngineRequest> requests;
  std::map<uint64_t, Answer> alone;
  for (const int length : lengths) {
    const uint64_t id = 1 + requests.size();
    requests[id] = Request(id, length, 2 + int(id) * 2, vocab());
    alone[id] = Alone(requests[id]);
  }
  for (const int chunk : {5, 16, 64, 512}) {
    SCOPED_TRACE(testing::Message() << "chunk " << chunk);
    auto prefill = NewEngine(chunk), decode = NewEngine(chunk);
    std::map<uint64_t, Answer> answers;
    // Uneven block ids, so that a wrong block table shows.
    ASSERT_TRUE(decode->Add(Request(99, 40, 2, vocab())).ok());
    for (auto& [id, request] : requests) {
      EngineRequest first = request, rest = request;
      first.park_after_first = true;
      rest.awaiting_kv = true;
      ASSERT_TRUE(prefill->Add(first).ok());
      ASSERT_TRUE(decode->Add(rest).ok());
    }
    decode->Cancel(99);
    EXPECT_FALSE(decode->has_work());
    std::map<uint64_t, int> sent;  // blocks
    while (prefill->has_work() || decode->has_work()) {
      std::vector<SequenceProgress> progress;
      if (prefill->has_work()) {
        StepInto(*prefill, answers);
        progress = prefill->progress();
      }
      for (const SequenceProgress& p : progress) {
        const bool whole = p.computed == int(requests[p.id].tokens.size());
        const int ready = whole ? kernels::BlocksFor(p.computed, kBlock) : p.computed / kBlock;
        const auto from = prefill->BlocksOf(p.id), to = decode->BlocksOf(p.id);
        CopyBlocks(*prefill, {from.begin() + sent[p.id], from.begin() + ready}, *decode,
                   {to.begin() + sent[p.id], to.end()});
        sent[p.id] = ready;
        if (!whole) continue;
        ASSERT_EQ(answers[p.id].tokens.size(), 1u);
        ASSERT_TRUE(decode->Activate(p.id, answers[p.id].tokens[0]).ok());
        EXPECT_TRUE(prefill->Cancel(p.id));
      }
      if (decode->has_work()) StepInto(*decode, answers);
    }
    for (const auto& [id, answer] : alone) {
      EXPECT_EQ(answers[id].tokens, answer.tokens) << "request " << id;
      EXPECT_TRUE(answers[id] == answer) << "bits of request " << id;
    }
    EXPECT_EQ(prefill->stats().blocks_free, 128);
    EXPECT_EQ(decode->stats().blocks_free, 128);
  }
}

TEST_F(SplitTest, AParkedRequestHoldsThePromptsBlocksOnly) {
  auto engine = NewEngine();
  EngineRequest request = Request(1, 2 * kBlock, 100, vocab());
  request.park_after_first = true;
  ASSERT_TRUE(engine->Add(request).ok());
  EXPECT_EQ(engine->stats().blocks_free, 126);
  const auto outputs = engine->Step();
  ASSERT_TRUE(outputs.ok());
  ASSERT_EQ(outputs->size(), 1u);
  EXPECT_EQ(outputs->at(0).finish, FinishReason::kNone);
  EXPECT_FALSE(engine->has_work());
  EXPECT_EQ(engine->stats().blocks_free, 126);
  EXPECT_EQ(engine->BlocksOf(1).size(), 2u);
  EXPECT_TRUE(engine->Cancel(1));
  EXPECT_EQ(engine->stats().blocks_free, 128);
  EXPECT_TRUE(engine->BlocksOf(1).empty());
}

TEST_F(SplitTest, AParkedRequestSaysWhetherItIsOver) {
  EngineRequest request = Request(2, 20, 5, vocab());
  const int32_t first = Alone(request).tokens[0];
  request.park_after_first = true;
  request.sampling.stop_ids = {first};
  auto engine = NewEngine();
  ASSERT_TRUE(engine->Add(request).ok());
  const auto outputs = engine->Step();
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(outputs->at(0).finish, FinishReason::kStop);
  EXPECT_EQ(engine->BlocksOf(2).size(), 2u) << "it parks all the same";
  request.id = 3;
  request.sampling.stop_ids.clear();
  request.sampling.max_tokens = 1;
  ASSERT_TRUE(engine->Add(request).ok());
  EXPECT_EQ(engine->Step()->at(0).finish, FinishReason::kLength);
}

TEST_F(SplitTest, ParkStopsAPromptInTheMiddle) {
  auto engine = NewEngine(/*chunk=*/16);
  ASSERT_TRUE(engine->Add(Request(1, 60, 5, vocab())).ok());
  ASSERT_TRUE(engine->Step().ok());
  const int free = engine->stats().blocks_free;
  EXPECT_TRUE(engine->Park(1));
  EXPECT_FALSE(engine->has_work());
  EXPECT_TRUE(engine->Step()->empty());
  EXPECT_TRUE(engine->progress().empty());
  EXPECT_EQ(engine->stats().blocks_free, free);
  EXPECT_TRUE(engine->Cancel(1));
  EXPECT_FALSE(engine->Park(1));
  EXPECT_EQ(engine->stats().blocks_free, 128);
}

TEST_F(SplitTest, ActivateIsCheckedAndChangesNothingWhenRefused) {
  auto engine = NewEngine();
  EngineRequest request = Request(1, 20, 5, vocab());
  request.awaiting_kv = true;
  ASSERT_TRUE(engine->Add(request).ok());
  EXPECT_EQ(engine->stats().blocks_free, 126);
  EXPECT_EQ(engine->Activate(2, 0).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(engine->Activate(1, vocab()).message()), HasSubstr("the vocabulary has"));
  EXPECT_FALSE(engine->has_work());
  EXPECT_TRUE(engine->Activate(1, 3).ok());
  EXPECT_EQ(engine->Activate(1, 3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine->Step()->at(0).index, 1);
  EXPECT_TRUE(engine->Cancel(1));
  ASSERT_TRUE(engine->Add(request).ok());
  EXPECT_TRUE(engine->Park(1));
  EXPECT_EQ(engine->Activate(1, 3).code(), absl::StatusCode::kFailedPrecondition) << "parked for good";
  EXPECT_TRUE(engine->Cancel(1));
  request.sampling.max_tokens = 1;
  EXPECT_THAT(std::string(engine->Add(request).message()), HasSubstr("nothing to generate"));
  request.sampling.max_tokens = 5;
  request.park_after_first = true;
  EXPECT_EQ(engine->Add(request).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->stats().blocks_free, 128);
}

}  // namespace
}  // namespace sluice::engine
