// Prefill and decode apart, in one process: two engines on a tiny model, both roles with their cores, loops, endpoints
// over gRPC and shared memory, and a scripted router. The same tokens and bits as one engine alone, or an error; never
// a wrong token.
#include <bit>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "decode_worker/decode_instance.h"
#include "engine/testing/tiny_setup.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prefill_worker/prefill_instance.h"
#include "worker/error_info.h"
#include "worker/pool_view.h"
#include "worker/listener.h"
#include "worker/testing/messages.h"
#include "worker/testing/test_router.h"
#include "worker/work_service.h"
#include "worker/worker_core.h"
#include "worker/worker_info.h"

namespace sluice {
namespace {

using kvtransfer::FaultPlan;
using worker::TestRouter;

constexpr absl::Duration kLong = absl::Seconds(20);  // only a broken test waits this long
constexpr int kBlocks = 160;

engine::TinyModelSpec Spec() {
  engine::TinyModelSpec spec;
  spec.ffn = 256;
  spec.context = 512;
  return spec;
}

const engine::TinySetup& Setup() {
  static const engine::TinySetup& setup = *new engine::TinySetup(engine::MakeTinySetup(Spec()));
  return setup;
}

std::unique_ptr<engine::Engine> NewEngine(int step_tokens) {
  engine::EngineOptions options;
  options.num_blocks = kBlocks;
  options.scheduler = {step_tokens, 8};
  auto engine = engine::Engine::Create(*Setup().file, *Setup().backend, options);
  CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

// A worker as WorkerServer composes it, but for the model, the clock of the transfer and the registration.
class Node {
 public:
  Node(uint64_t incarnation, v1::Role role, int step_tokens, const worker::RoleFactory& make_role)
      : engine_(NewEngine(step_tokens)), port_(*engine_), requests_(absl::Seconds(30)), loop_({}, board_) {
    options_.model = "tiny";
    options_.role = role;
    info_ = worker::DescribeWorker(options_, incarnation, *Setup().file, *Setup().backend, *engine_);
    auto instance = make_role({.options = options_,
                               .key = key_,
                               .security = security_,
                               .info = info_,
                               .kv = worker::PoolViewOf(*engine_),
                               .engine = port_,
                               .requests = requests_,
                               .loop = loop_,
                               .board = board_,
                               .report_soon = [] {}});
    CHECK(instance.ok()) << instance.status();
    instance_ = *std::move(instance);
    core_ = std::make_unique<worker::WorkerCore>(worker::CoreOptions{incarnation, Setup().file->config().vocab}, port_,
                                                 requests_, instance_->role());
    service_ = std::make_unique<worker::WorkService>(loop_);
    std::vector<grpc::Service*> services = instance_->services();
    services.push_back(service_.get());
    auto listening = worker::Listen("127.0.0.1", 0, services);
    CHECK(listening.ok()) << listening.status();
    listening_ = *std::move(listening);
    loop_.Start(*core_, port_);
    router_ = std::make_unique<TestRouter>(port());
    router_->Send(worker::Hello(incarnation));
  }
  ~Node() {
    Stop();
    router_.reset();
  }

  void Stop() {
    if (listening_.server == nullptr) return;
    EXPECT_TRUE(loop_.Stop(worker::MakeError(v1::DRAINING_WORKER, "stopping"), kLong));
    listening_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
    listening_.server.reset();
    instance_.reset();
  }

  uint64_t incarnation() const { return info_.incarnation(); }
  int port() const { return listening_.port; }
  TestRouter& router() { return *router_; }
  worker::RoleInstance& instance() { return *instance_; }

  bool AwaitPair(uint64_t decode) { return AwaitPairIs(decode, true); }
  bool AwaitPairIs(uint64_t decode, bool up) {
    return Poll([&] {
      const v1::WorkerReport report = board_.Take();
      for (const v1::PairStatus& pair : report.pairs()) {
        if (pair.decode_incarnation() == decode && pair.up() == up) return true;
      }
      return false;
    });
  }
  bool AwaitBaseline() {
    return Poll([&] { return board_.Take().blocks_free() == kBlocks; });
  }

  template <typename Pred>
  static bool Poll(Pred pred) {
    for (const absl::Time end = absl::Now() + kLong; absl::Now() < end; absl::SleepFor(absl::Milliseconds(2))) {
      if (pred()) return true;
    }
    return false;
  }

 private:
  worker::WorkerOptions options_;
  std::unique_ptr<engine::Engine> engine_;
  worker::LocalEngine port_;
  ClusterKey key_;
  TransportSecurity security_;
  v1::WorkerInfo info_;
  worker::ReportBoard board_;
  worker::RequestTable requests_;
  worker::EngineLoop loop_;
  std::unique_ptr<worker::RoleInstance> instance_;
  std::unique_ptr<worker::WorkerCore> core_;
  std::unique_ptr<worker::WorkService> service_;
  worker::Listening listening_;
  std::unique_ptr<TestRouter> router_;
};

std::unique_ptr<Node> NewDecode(uint64_t incarnation, absl::Duration patience) {
  return std::make_unique<Node>(
      incarnation, v1::ROLE_DECODE, 64,
      [patience](const worker::RoleEnvironment& e) -> absl::StatusOr<std::unique_ptr<worker::RoleInstance>> {
        kvtransfer::DecodeEndpoint::Options timing;
        timing.receiver.progress_timeout = patience;
        timing.receiver.max_piece_bytes = 4096;  // many pieces of a tiny model
        return std::make_unique<decode_worker::DecodeInstance>(e, timing);
      });
}

std::unique_ptr<Node> NewPrefill(uint64_t incarnation, absl::Duration patience, int step_tokens = 32,
                                 FaultPlan faults = {}) {
  return std::make_unique<Node>(
      incarnation, v1::ROLE_PREFILL, step_tokens,
      [&](const worker::RoleEnvironment& e) -> absl::StatusOr<std::unique_ptr<worker::RoleInstance>> {
        kvtransfer::PrefillEndpoint::Options timing;
        timing.sender.progress_timeout = patience;
        return std::make_unique<prefill_worker::PrefillInstance>(e, faults, timing);
      });
}

bool Pair(Node& prefill, Node& decode) {
  prefill.instance().SetPeers({{decode.incarnation(), absl::StrCat("127.0.0.1:", decode.port())}});
  return prefill.AwaitPair(decode.incarnation());
}

struct Answer {
  std::map<int, int32_t> tokens;  // by index
  std::map<int, uint32_t> bits;   // of the sampled token's log-probability
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  bool operator==(const Answer&) const = default;
};

v1::SequenceSpec Request(int prompt, int max_tokens, uint64_t seed) {
  v1::SequenceSpec spec;
  for (const int32_t token : engine::RandomTokens(prompt, Setup().file->config().vocab, seed)) spec.add_tokens(token);
  spec.set_num_prompt_tokens(prompt);
  spec.mutable_sampling()->set_max_tokens(max_tokens);
  spec.mutable_sampling()->set_logprobs(0);
  spec.mutable_sampling()->set_temperature(seed % 2 == 0 ? 0.0f : 1.0f);
  spec.mutable_sampling()->set_seed(seed);
  return spec;
}

// What a worker told its router about one request.
void Collect(TestRouter& router, const std::string& id, Answer& answer) {
  for (const v1::WorkerEvent& event : router.events()) {
    if (event.key().request_id() != id) continue;
    if (event.has_finished()) answer.reason = event.finished().reason();
    for (int i = 0; i < event.tokens().token_ids_size(); ++i) {
      const int index = event.tokens().first_index() + i;
      EXPECT_TRUE(answer.tokens.emplace(index, event.tokens().token_ids(i)).second) << "token " << index << " twice";
      answer.bits[index] = std::bit_cast<uint32_t>(event.tokens().logprobs(i).sampled().logprob());
    }
  }
}

bool IsEnd(const v1::WorkerEvent& event) {
  return event.has_failed() || event.has_finished() || event.has_refused();
}
bool IsPrefillEnd(const v1::WorkerEvent& event) {
  return IsEnd(event) || (event.has_progress() && event.progress().events(0).name() == "transfer_done");
}

class HandoverTest : public testing::Test {
 protected:
  // The answer of one worker that does both, in a decode node.
  static Answer AloneAnswer(Node& both, const std::string& id, const v1::SequenceSpec& spec) {
    v1::RouterMessage message;
    v1::Reserve& reserve = *message.mutable_reserve();
    *reserve.mutable_key() = worker::Key(id);
    *reserve.mutable_sequence() = spec;
    reserve.set_compute_prompt(true);
    both.router().Send(message);
    EXPECT_TRUE(both.router().AwaitOf(id, worker::IsFinished));
    Answer answer;
    Collect(both.router(), id, answer);
    return answer;
  }

  static void Reserve(Node& decode, const Node& prefill, const std::string& id, const v1::SequenceSpec& spec) {
    v1::RouterMessage message;
    v1::Reserve& reserve = *message.mutable_reserve();
    *reserve.mutable_key() = worker::Key(id);
    *reserve.mutable_sequence() = spec;
    reserve.set_prefill_incarnation(prefill.incarnation());
    decode.router().Send(message);
  }

  static uint64_t LeaseOf(Node& decode, const std::string& id) {
    EXPECT_TRUE(decode.router().AwaitOf(id, worker::IsGranted));
    for (const v1::WorkerEvent& event : decode.router().events()) {
      if (event.key().request_id() == id && event.has_lease_granted()) return event.lease_granted().lease_id();
    }
    return 0;
  }

  static void Prefill(Node& prefill, const Node& decode, const std::string& id, const v1::SequenceSpec& spec,
                      uint64_t lease) {
    v1::RouterMessage message;
    *message.mutable_prefill()->mutable_key() = worker::Key(id);
    *message.mutable_prefill()->mutable_sequence() = spec;
    message.mutable_prefill()->mutable_lease()->set_decode_incarnation(decode.incarnation());
    message.mutable_prefill()->mutable_lease()->set_lease_id(lease);
    prefill.router().Send(message);
  }

  // All of them at once.
  static void Start(Node& prefill, Node& decode, const std::map<std::string, v1::SequenceSpec>& requests) {
    for (const auto& [id, spec] : requests) Reserve(decode, prefill, id, spec);
    for (const auto& [id, spec] : requests) Prefill(prefill, decode, id, spec, LeaseOf(decode, id));
  }

  // Index 0 must come from the prefill worker, the rest from the decode worker.
  static Answer Result(Node& prefill, Node& decode, const std::string& id) {
    Answer answer, second;
    EXPECT_TRUE(prefill.router().AwaitOf(id, IsPrefillEnd)) << id;
    EXPECT_TRUE(decode.router().AwaitOf(id, IsEnd)) << id;
    Collect(prefill.router(), id, answer);
    EXPECT_LE(answer.tokens.size(), 1u);
    Collect(decode.router(), id, second);
    EXPECT_FALSE(second.tokens.contains(0));
    answer.tokens.merge(second.tokens);
    answer.bits.merge(second.bits);
    answer.reason = std::max(answer.reason, second.reason);
    return answer;
  }

  static int Ends(Node& node, const std::string& id) {
    int ends = 0;
    for (const v1::WorkerEvent& e : node.router().events()) {
      if (e.key().request_id() == id && IsPrefillEnd(e)) ++ends;
    }
    return ends;
  }
};

TEST_F(HandoverTest, BitsAreThoseOfOneWorker) {
  std::map<std::string, v1::SequenceSpec> requests;
  for (const int prompt : {1, 15, 16, 17, 47, 48, 49, 127, 128, 129, 300, 301}) {
    requests[absl::StrCat("p", prompt)] = Request(prompt, 2 + prompt % 7, uint64_t(prompt));
  }
  const auto both = NewDecode(1, kLong);
  std::map<std::string, Answer> alone;
  for (const auto& [id, spec] : requests) alone[id] = AloneAnswer(*both, id, spec);
  for (const int step_tokens : {16, 40, 256}) {
    SCOPED_TRACE(testing::Message() << "steps of " << step_tokens);
    const auto decode = NewDecode(42, kLong);
    const auto prefill = NewPrefill(77, kLong, step_tokens);
    ASSERT_TRUE(Pair(*prefill, *decode));
    Start(*prefill, *decode, requests);
    for (const auto& [id, expected] : alone) {
      EXPECT_TRUE(Result(*prefill, *decode, id) == expected) << id;
      EXPECT_EQ(Ends(*decode, id), 1);
      EXPECT_EQ(Ends(*prefill, id), 1);
    }
    EXPECT_TRUE(prefill->AwaitBaseline());
    EXPECT_TRUE(decode->AwaitBaseline());
  }
}

// The timeline of a prompt of many chunks: bytes are acknowledged while later chunks are computed.
TEST_F(HandoverTest, BlocksFlowDuringThePrefill) {
  const auto decode = NewDecode(42, kLong);
  const auto prefill = NewPrefill(77, kLong, /*step_tokens=*/4);  // steps enough for the acks
  ASSERT_TRUE(Pair(*prefill, *decode));
  Start(*prefill, *decode, {{"a", Request(500, 3, 5)}});
  Result(*prefill, *decode, "a");
  int64_t acked_before_first_token = 0, committed = 0;
  int chunks = 0;
  bool first_token = false;
  double last_at = 0;
  for (const v1::WorkerEvent& e : prefill->router().events()) {
    for (const v1::TimelineEvent& t : e.progress().events()) {
      EXPECT_GE(t.at_ms(), 0);
      if (t.name() != "piece_acked") {
        EXPECT_GE(t.at_ms(), last_at);
        last_at = t.at_ms();
      }
      chunks += t.name() == "prefill_chunk";
      first_token = first_token || t.name() == "first_token";
      if (t.name() == "piece_acked" && !first_token) acked_before_first_token = t.amount();
    }
  }
  for (const v1::WorkerEvent& e : decode->router().events()) {
    if (e.has_committed()) committed = e.committed().bytes();
  }
  EXPECT_EQ(chunks, 125);
  EXPECT_GT(committed, 0);
  EXPECT_GT(acked_before_first_token, 0) << "nothing flowed before the end";
}

TEST_F(HandoverTest, AFaultIsAnErrorAndNeverAWrongToken) {
  const std::map<std::string, FaultPlan> plans = {
      {"corrupt", {.corrupt = {2, 9}}}, {"lose", {.lose = {3}}}, {"stall", {.stall = {5}}}, {"fail", {.fail = {4}}}};
  std::map<std::string, v1::SequenceSpec> requests;
  for (const int prompt : {20, 48, 65, 130}) {
    requests[absl::StrCat("p", prompt)] = Request(prompt, 6, uint64_t(prompt));
  }
  const auto both = NewDecode(1, kLong);
  std::map<std::string, Answer> alone;
  for (const auto& [id, spec] : requests) alone[id] = AloneAnswer(*both, id, spec);
  for (const auto& [name, plan] : plans) {
    SCOPED_TRACE(name);
    const auto decode = NewDecode(42, absl::Milliseconds(700));
    const auto prefill = NewPrefill(77, absl::Seconds(2), /*step_tokens=*/32, plan);
    ASSERT_TRUE(Pair(*prefill, *decode));
    Start(*prefill, *decode, requests);
    int failed = 0;
    for (const auto& [id, expected] : alone) {
      const Answer answer = Result(*prefill, *decode, id);
      for (const auto& [index, token] : answer.tokens) {
        EXPECT_EQ(token, expected.tokens.at(index)) << id << " token " << index;
        EXPECT_EQ(answer.bits.at(index), expected.bits.at(index));
      }
      if (answer == expected) continue;
      ++failed;
      EXPECT_LE(answer.tokens.size(), 1u) << "nothing is decoded from KV that is not whole";
      EXPECT_TRUE(decode->router().AwaitOf(
          id, worker::FailedWith(name == "corrupt" ? v1::CHECKSUM_MISMATCH : v1::TRANSFER_FAILED)));
    }
    EXPECT_GT(failed, 0) << "the fault did not happen";
    EXPECT_TRUE(prefill->AwaitBaseline());
    EXPECT_TRUE(decode->AwaitBaseline());
    // A stalled pair was rebuilt; the next request is fine.
    ASSERT_TRUE(prefill->AwaitPair(42));
    Start(*prefill, *decode, {{"next", requests.at("p65")}});
    EXPECT_TRUE(Result(*prefill, *decode, "next") == alone.at("p65"));
  }
}

// A stalled transfer holds both sides in the middle; then something ends it.
class HeldInTheMiddle : public HandoverTest {
 protected:
  void SetUp() override {
    decode_ = NewDecode(42, kLong);
    prefill_ = NewPrefill(77, kLong, 32, {.stall = {3}});
    ASSERT_TRUE(Pair(*prefill_, *decode_));
    Start(*prefill_, *decode_, {{"a", Request(130, 6, 5)}});
    ASSERT_TRUE(prefill_->router().AwaitOf("a", worker::IsTokens)) << "the first token waits for no transfer";
    const auto& faults = static_cast<prefill_worker::PrefillInstance&>(prefill_->instance()).faults();
    ASSERT_TRUE(Node::Poll([&] { return faults.injected > 0; }));
    EXPECT_EQ(Ends(*prefill_, "a") + Ends(*decode_, "a"), 0);
  }
  std::unique_ptr<Node> decode_, prefill_;
};

// Whether the other side hears the last word or the silence behind it first is a race; either is an error at once.
bool HeardThatItWent(const v1::WorkerEvent& event) {
  const v1::ErrorReason reason = event.failed().error().reason();
  return event.has_failed() && (reason == v1::DRAINING_WORKER || reason == v1::WORKER_LOST);
}

TEST_F(HeldInTheMiddle, ThePrefillWorkerGoes) {
  prefill_->Stop();
  EXPECT_TRUE(decode_->router().AwaitOf("a", HeardThatItWent));
  EXPECT_TRUE(decode_->AwaitBaseline());
}

TEST_F(HeldInTheMiddle, TheDecodeWorkerGoes) {
  decode_->Stop();
  EXPECT_TRUE(prefill_->router().AwaitOf("a", HeardThatItWent));
  EXPECT_TRUE(prefill_->AwaitBaseline());
}

// A cancel does not wait for the lost piece; the pair, whose channel is out of step, is made anew.
TEST_F(HeldInTheMiddle, CancelFreesBothSidesAndTheNextRequestIsFine) {
  decode_->router().Send(worker::Cancel("a"));
  prefill_->router().Send(worker::Cancel("a"));
  EXPECT_TRUE(decode_->router().AwaitOf("a", worker::FailedWith(v1::CANCELLED_BY_CLIENT)));
  EXPECT_TRUE(prefill_->router().AwaitOf("a", worker::FailedWith(v1::CANCELLED_BY_CLIENT)));
  EXPECT_TRUE(decode_->AwaitBaseline());
  EXPECT_TRUE(prefill_->AwaitBaseline());
  ASSERT_TRUE(prefill_->AwaitPairIs(42, false));
  ASSERT_TRUE(prefill_->AwaitPair(42));
  Start(*prefill_, *decode_, {{"next", Request(40, 6, 5)}});
  EXPECT_EQ(Result(*prefill_, *decode_, "next").tokens.size(), 6u);
}

TEST_F(HeldInTheMiddle, CancelAtDecode) {
  decode_->router().Send(worker::Cancel("a"));
  EXPECT_TRUE(decode_->router().AwaitOf("a", worker::FailedWith(v1::CANCELLED_BY_CLIENT)));
  EXPECT_TRUE(decode_->AwaitBaseline());
  EXPECT_TRUE(prefill_->AwaitBaseline()) << "the pair is given up when the lost piece is due";
  EXPECT_EQ(decode_->router().TokensOf("a").size(), 0u);
}

TEST_F(HeldInTheMiddle, CancelAtPrefillEndsDecodeWithTheSameReason) {
  prefill_->router().Send(worker::Cancel("a"));
  EXPECT_TRUE(decode_->router().AwaitOf("a", worker::FailedWith(v1::CANCELLED_BY_CLIENT)));
  EXPECT_TRUE(decode_->AwaitBaseline());
  EXPECT_TRUE(prefill_->AwaitBaseline());
}

TEST_F(HeldInTheMiddle, TheRouterGoes) {
  decode_->router().Vanish();
  prefill_->router().Vanish();
  EXPECT_TRUE(decode_->AwaitBaseline());
  EXPECT_TRUE(prefill_->AwaitBaseline());
}

TEST_F(HandoverTest, WithoutAPairItFailsAtOnce) {
  const auto decode = NewDecode(42, kLong);
  const auto prefill = NewPrefill(77, kLong);
  Reserve(*decode, *prefill, "a", Request(40, 5, 1));
  EXPECT_TRUE(decode->router().AwaitOf("a", worker::FailedWith(v1::WORKER_LOST)));
  Prefill(*prefill, *decode, "b", Request(40, 5, 1), 1);
  EXPECT_TRUE(prefill->router().AwaitOf("b", worker::FailedWith(v1::WORKER_LOST)));
  EXPECT_TRUE(prefill->AwaitBaseline());
  EXPECT_TRUE(decode->AwaitBaseline());
}

}  // namespace
}  // namespace sluice
