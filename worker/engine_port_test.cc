// The worker's core on the real engine with a tiny model: the same promises as on the scripted one.
#include "worker/engine_port.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/testing/tiny_setup.h"
#include "gtest/gtest.h"
#include "worker/testing/computing_role.h"
#include "worker/testing/messages.h"
#include "worker/worker_core.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kIncarnation = 42;
constexpr int kLeaseMs = 1000;
constexpr int kStepTokens = 16;

absl::Time At(int ms) {
  return absl::UnixEpoch() + absl::Milliseconds(ms);
}

engine::TinyModelSpec Small() {
  engine::TinyModelSpec spec;
  spec.ffn = 256;
  spec.context = 256;
  return spec;
}

class RealEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { setup_ = new engine::TinySetup(engine::MakeTinySetup(Small())); }
  static void TearDownTestSuite() { delete setup_; }

  std::unique_ptr<engine::Engine> NewEngine() {
    engine::EngineOptions options;
    options.num_blocks = 48;
    options.scheduler = {kStepTokens, 8};
    auto engine = engine::Engine::Create(*setup_->file, *setup_->backend, options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  void SetUp() override {
    ASSERT_TRUE(setup_->file != nullptr && setup_->backend != nullptr);
    engine_ = NewEngine();
    port_ = std::make_unique<LocalEngine>(*engine_);
    role_ = std::make_unique<ComputingRole>(*port_, requests_);
    core_ = std::make_unique<WorkerCore>(CoreOptions{kIncarnation, setup_->file->config().vocab}, *port_, requests_,
                                         *role_);
    core_->OnMessage(1, Hello(kIncarnation), At(0));
    core_->TakeOutgoing();
  }

  std::vector<v1::WorkerEvent> Events() {
    std::vector<v1::WorkerEvent> events;
    for (const Outgoing& out : core_->TakeOutgoing()) {
      for (const v1::WorkerEvent& event : out.message.events()) events.push_back(event);
    }
    return events;
  }

  // The answer of the engine alone.
  std::vector<int32_t> Alone(const v1::SequenceSpec& spec) {
    std::unique_ptr<engine::Engine> engine = NewEngine();
    engine::EngineRequest request;
    request.id = 1;
    request.tokens.assign(spec.tokens().begin(), spec.tokens().end());
    request.num_prompt_tokens = spec.num_prompt_tokens();
    request.sampling.max_tokens = spec.sampling().max_tokens();
    request.sampling.temperature = spec.sampling().temperature();
    request.sampling.seed = spec.sampling().seed();
    EXPECT_TRUE(engine->Add(request).ok());
    std::vector<int32_t> tokens;
    while (engine->has_work()) {
      const auto outputs = engine->Step();
      EXPECT_TRUE(outputs.ok());
      for (const engine::TokenOutput& output : *outputs) tokens.push_back(output.sampled.token);
    }
    return tokens;
  }

  static engine::TinySetup* setup_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<LocalEngine> port_;
  RequestTable requests_{absl::Milliseconds(kLeaseMs)};
  std::unique_ptr<ComputingRole> role_;
  std::unique_ptr<WorkerCore> core_;
};

engine::TinySetup* RealEngineTest::setup_ = nullptr;

TEST_F(RealEngineTest, TokensAreThoseOfTheEngineAlone) {
  std::vector<v1::RouterMessage> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(Reserve(std::to_string(i), 7 + 13 * i, 10 + i));
    v1::SamplingParams& sampling = *requests.back().mutable_reserve()->mutable_sequence()->mutable_sampling();
    sampling.set_temperature(i % 2 == 0 ? 0.0f : 1.0f);
    sampling.set_seed(uint64_t(i) + 5);
    core_->OnMessage(1, requests.back(), At(0));
  }
  std::map<std::string, std::vector<int32_t>> tokens;
  while (core_->has_work()) {
    ASSERT_TRUE(core_->Step([] { return At(0); }).ok());
    for (const v1::WorkerEvent& event : Events()) {
      if (!event.has_tokens()) continue;
      std::vector<int32_t>& of = tokens[event.key().request_id()];
      EXPECT_EQ(event.tokens().first_index(), int(of.size()));
      of.insert(of.end(), event.tokens().token_ids().begin(), event.tokens().token_ids().end());
    }
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(tokens[std::to_string(i)], Alone(requests[i].reserve().sequence())) << "request " << i;
  }
  EXPECT_EQ(engine_->stats().blocks_free, engine_->stats().blocks_total);
}

TEST_F(RealEngineTest, RefusalsOfTheEngineHaveTheirReasons) {
  core_->OnMessage(1, Reserve("over the context", 200, 100), At(0));
  core_->OnMessage(1, Reserve("a", 200, 56), At(0));
  core_->OnMessage(1, Reserve("b", 200, 56), At(0));
  core_->OnMessage(1, Reserve("c", 200, 56), At(0));
  core_->OnMessage(1, Reserve("d", 5, 5), At(0));
  const std::vector<v1::WorkerEvent> events = Events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].refused().error().reason(), v1::INVALID_REQUEST);
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(events[i].has_lease_granted()) << events[i].ShortDebugString();
  EXPECT_EQ(events[4].refused().error().reason(), v1::NO_BLOCKS);
}

struct End {
  const char* name;
  std::function<void(WorkerCore&)> act;
};

const End kEnds[] = {
    {"Cancel", [](WorkerCore& core) { core.OnMessage(1, Cancel("a"), At(10)); }},
    {"LeaseExpiry", [](WorkerCore& core) { core.Tick(At(kLeaseMs)); }},
    {"Deadline", [](WorkerCore& core) { core.Tick(At(500)); }},
    {"StreamEnd", [](WorkerCore& core) { core.OnStreamEnd(1); }},
};

class EveryEndOnTheRealEngine : public RealEngineTest, public testing::WithParamInterface<std::tuple<int, int>> {};

// A prompt of five chunks: steps 0 admitted, 2 inside the prompt, 5 first token, 9 decoding.
TEST_P(EveryEndOnTheRealEngine, FreesTheBlocksAtOnce) {
  const End& end = kEnds[std::get<0>(GetParam())];
  core_->OnMessage(1, Reserve("a", 5 * kStepTokens, 50, /*remaining_ms=*/500), At(0));
  core_->OnMessage(1, Reserve("b", 40, 50, /*remaining_ms=*/500), At(0));
  for (int i = 0; i < std::get<1>(GetParam()); ++i) ASSERT_TRUE(core_->Step([] { return At(0); }).ok());
  ASSERT_LT(engine_->stats().blocks_free, engine_->stats().blocks_total);
  end.act(*core_);
  core_->OnMessage(1, Cancel("b"), At(10));
  EXPECT_EQ(engine_->stats().blocks_free, engine_->stats().blocks_total);
  EXPECT_FALSE(core_->has_work());
  EXPECT_EQ(core_->live_requests(), 0u);
}

INSTANTIATE_TEST_SUITE_P(AllStates, EveryEndOnTheRealEngine,
                         testing::Combine(testing::Range(0, int(std::size(kEnds))), testing::Values(0, 2, 5, 9)),
                         [](const auto& param) {
                           return std::string(kEnds[std::get<0>(param.param)].name) + "After" +
                                  std::to_string(std::get<1>(param.param)) + "Steps";
                         });

}  // namespace
}  // namespace sluice::worker
