// The router's whole edge over loopback, with a scripted worker: what clients see.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "router/testing/front_world.h"

namespace sluice::router {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Answer {
  std::string text;
  std::vector<int32_t> ids;
  int responses = 0;
  bool prompt_first = false;
  pb::GenerateResponse last;
  grpc::Status status;
};

class FrontTest : public FrontWorld {
 protected:
  static pb::GenerateRequest Request(int max_tokens, const std::string& text = "hello") {
    pb::GenerateRequest request;
    request.set_text(text);
    request.mutable_sampling()->set_max_tokens(max_tokens);
    return request;
  }

  Answer Generate(const pb::GenerateRequest& request) {
    grpc::ClientContext context;
    return Generate(request, context);
  }
  Answer Generate(const pb::GenerateRequest& request, grpc::ClientContext& context) {
    Answer answer;
    auto reader = stub_->Generate(&context, request);
    pb::GenerateResponse response;
    while (reader->Read(&response)) {
      if (answer.responses++ == 0) answer.prompt_first = response.has_prompt();
      for (const auto& delta : response.choices()) {
        answer.text += delta.text();
        answer.ids.insert(answer.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      }
      answer.last = response;
    }
    answer.status = reader->Finish();
    return answer;
  }

  // A call with any bytes as its request; returns the status and the first response's bytes.
  std::pair<grpc::Status, std::string> RawCall(const char* method, const std::string& bytes) {
    grpc::ClientContext context;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        channel_.get(), grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::NORMAL_RPC), &context, request,
        &response);
    std::vector<grpc::Slice> slices;
    std::string first;
    if (status.ok() && response.Dump(&slices).ok() && !slices.empty()) {
      first.assign(reinterpret_cast<const char*>(slices[0].begin()), slices[0].size());
    }
    return {status, first};
  }
  bool Serving() { return RawCall("/grpc.health.v1.Health/Check", "").second == std::string("\x08\x01"); }
};

TEST_F(FrontTest, StreamsAnAnswer) {
  StartRouter();
  EXPECT_FALSE(Serving());
  EXPECT_EQ(Generate(Request(4)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  FakeScript script;
  script.ids = model_->Encode("abc");
  auto worker = StartWorker(script);
  EXPECT_TRUE(Eventually([&] { return Serving(); }));
  pb::GenerateRequest request = Request(7);
  request.set_request_id("mine");
  const Answer answer = Generate(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.prompt_first);
  EXPECT_EQ(answer.ids.size(), 7u);
  EXPECT_THAT(answer.text, StartsWith("abc"));
  EXPECT_EQ(answer.last.request_id(), "mine");
  EXPECT_EQ(answer.last.usage().completion_tokens(), 7);
  EXPECT_EQ(answer.last.choices(0).finish_reason(), pb::FINISH_REASON_LENGTH);
  EXPECT_EQ(answer.last.timing().timeline(1).name(), "reserved");
  EXPECT_THAT(answer.last.timing().timeline(1).worker(), HasSubstr(absl::StrCat(worker->port())));
  ExpectClean(*worker);
}

TEST_F(FrontTest, BadInputIsNamedAndKillsNothing) {
  StartRouter();
  auto worker = StartWorker();
  constexpr char kGenerate[] = "/sluice.v1.Inference/Generate";
  const std::map<std::string, std::string> cases = {
      {std::string("\xff\xff\xff"), "the message is not a valid sluice.v1.GenerateRequest"},
      {std::string("\x18\x01"), "text: has the wrong wire type"},
      {std::string("\x1a\x01z\x2a\x03\x0a\x01x"), "sampling.temperature: has the wrong wire type"},
      {std::string("\x1a\x02z\xff"), "text: is not valid UTF-8"},
      {std::string("\x1a\x01z\x2a\x04\x82\x01\x01\xff"), "sampling.stop: is not valid UTF-8"},
      {std::string(), "prompt: is missing"},
  };
  for (const auto& [bytes, why] : cases) {
    const grpc::Status status = RawCall(kGenerate, bytes).first;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), StartsWith(why));
  }
  EXPECT_THAT(Generate(Request(0)).status.error_message(), StartsWith("sampling.max_tokens"));
  pb::GenerateRequest foreign = Request(1);
  foreign.set_model("other");
  EXPECT_EQ(Generate(foreign).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(worker->reserves(), 0);
  EXPECT_TRUE(Generate(Request(3)).status.ok());
}

TEST_F(FrontTest, SixteenStreamsAtOnce) {
  StartRouter();
  FakeScript script;
  script.tokens_per_message = 3;
  auto worker = StartWorker(script);
  std::vector<std::thread> threads;
  std::vector<Answer> answers(16);
  for (size_t i = 0; i < answers.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = Generate(Request(20 + int(i))); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_TRUE(answers[i].status.ok());
    EXPECT_EQ(answers[i].ids.size(), 20 + i);
  }
  ExpectClean(*worker);
}

TEST_F(FrontTest, AStopStringCancelsTheWorker) {
  StartRouter();
  FakeScript script;
  script.ids = model_->Encode("abcX");
  auto worker = StartWorker(script);
  pb::GenerateRequest request = Request(60000);
  request.mutable_sampling()->add_stop("X");
  const Answer answer = Generate(request);
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.last.choices(0).finish_reason(), pb::FINISH_REASON_STOP);
  EXPECT_EQ(answer.last.usage().completion_tokens(), int(answer.ids.size()));
  EXPECT_TRUE(Eventually([&] { return worker->cancels() == 1; }));
  ExpectClean(*worker);
}

// ---- cancel in each state ----

TEST_F(FrontTest, CancelWhileQueuedTouchesNoWorker) {
  StartRouter();
  FakeScript script;
  script.tokens = 1;  // then it hangs
  auto worker = StartWorker(script, {.max_running = 1});
  grpc::ClientContext first;
  auto running = stub_->Generate(&first, Request(100));
  ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
  grpc::ClientContext second;
  auto queued = stub_->Generate(&second, Request(100));
  ASSERT_TRUE(Eventually([&] { return State().queued() == 1; }));
  second.TryCancel();
  EXPECT_EQ(queued->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return State().queued() == 0; }));
  EXPECT_EQ(worker->cancels(), 0);
  EXPECT_EQ(worker->reserves(), 1);
  first.TryCancel();
  EXPECT_EQ(running->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectClean(*worker);
}

TEST_F(FrontTest, CancelWhileReservedOrPrefillingOrDecoding) {
  StartRouter();
  auto worker = StartWorker();
  FakeScript reserved;
  reserved.answer_reserve = false;
  FakeScript prefilling;
  prefilling.tokens = 0;
  FakeScript decoding;
  decoding.tokens = 2;
  int cancels = 0;
  for (const FakeScript& script : {reserved, prefilling, decoding}) {
    worker->SetScript(script);
    grpc::ClientContext context;
    auto reader = stub_->Generate(&context, Request(100));
    ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
    pb::GenerateResponse response;
    if (script.tokens == 2) {
      ASSERT_TRUE(reader->Read(&response));  // the prompt
      ASSERT_TRUE(reader->Read(&response));
    }
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    ++cancels;
    EXPECT_TRUE(Eventually([&] { return worker->cancels() == cancels; }));
    ExpectClean(*worker);
  }
}

TEST_F(FrontTest, AClientWhoseConnectionIsLostIsGone) {
  StartRouter();
  FakeScript script;
  script.tokens = 1;
  auto worker = StartWorker(script);
  {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", router_->port()),
                                             grpc::InsecureChannelCredentials(), args);
    grpc::ClientContext context;
    auto reader = pb::Inference::NewStub(channel)->Generate(&context, Request(100));
    pb::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
  }
  ExpectClean(*worker);
}

TEST_F(FrontTest, DeadlinesOfTheRequestAndOfTheCall) {
  StartRouter();
  FakeScript script;
  script.tokens = 1;
  auto worker = StartWorker(script);
  pb::GenerateRequest request = Request(100);
  request.set_timeout_ms(50);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("it was decoding"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(Generate(Request(100), context).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectClean(*worker);
}

TEST_F(FrontTest, ThePromptsLogprobsAreMoreThanOneMessageAndNeverTheReadersFault) {
  ServerOptions options;
  options.calls.outbox_bytes = 16 << 10;
  StartRouter(options);
  auto worker = StartWorker();
  pb::GenerateRequest request = Request(1);
  for (int i = 0; i < 60000; ++i) request.mutable_token_ids()->add_ids(5 + i % 100);
  request.mutable_sampling()->set_prompt_logprobs(16);
  grpc::ClientContext context;  // takes messages of 4 MiB at most
  auto reader = stub_->Generate(&context, request);
  pb::GenerateResponse response;
  pb::PromptInfo prompt;
  int responses = 0;
  while (reader->Read(&response)) {
    responses += response.has_prompt();
    prompt.MergeFrom(response.prompt());
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(responses, 5);
  EXPECT_EQ(prompt.token_ids_size(), 60000);
  ASSERT_EQ(prompt.logprobs_size(), 59999);
  for (int i = 0; i < 59999; ++i) ASSERT_EQ(prompt.logprobs(i).sampled().token_id(), prompt.token_ids(i + 1));
  ExpectClean(*worker);
  request.mutable_sampling()->set_prompt_logprobs(20);
  const grpc::Status many = Generate(request).status;
  EXPECT_EQ(many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(many.error_message(), StartsWith("sampling.prompt_logprobs: prompt (60000 tokens) x (1 + 20)"));
}

// ---- slow clients ----

TEST_F(FrontTest, ASlowReaderIsCutOffWithBoundedMemory) {
  ServerOptions options;
  options.calls.outbox_bytes = 16 << 10;
  options.calls.slow_grace = absl::Seconds(60);
  StartRouter(options);
  FakeScript script;
  script.top_logprobs = 20;
  script.tokens_per_message = 50;
  auto worker = StartWorker(script);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Request(60000));
  EXPECT_TRUE(Eventually([&] { return worker->cancels() == 1; }));  // without a single read
  ExpectClean(*worker);
  pb::GenerateResponse response;
  int tokens = 0;
  while (reader->Read(&response)) {
    for (const auto& delta : response.choices()) tokens += delta.token_ids_size();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("reads too slowly"));
  EXPECT_LT(tokens, 60000);
}

TEST_F(FrontTest, AReaderThatNeverReadsIsReset) {
  ServerOptions options;
  options.calls.outbox_bytes = 16 << 10;
  options.calls.slow_grace = absl::Milliseconds(100);
  StartRouter(options);
  FakeScript script;
  script.top_logprobs = 20;
  script.tokens_per_message = 50;
  auto worker = StartWorker(script);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Request(60000));
  EXPECT_TRUE(Eventually([&] { return worker->cancels() == 1; }));
  absl::SleepFor(absl::Milliseconds(300));
  pb::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
  ExpectClean(*worker);
}

// ---- traces ----

TEST_F(FrontTest, ATraceContextComesFromTheRequestOrElseFromTheMetadata) {
  StartRouter();
  auto worker = StartWorker({});
  using Metadata = std::vector<std::pair<std::string, std::string>>;
  const auto seen = [&](const Metadata& metadata, const std::string& own) {
    grpc::ClientContext context;
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    pb::GenerateRequest request = Request(3);
    if (!own.empty()) request.mutable_trace()->set_traceparent(own);
    EXPECT_TRUE(Generate(request, context).status.ok());
    const pb::TraceContext trace = worker->last_trace();
    return trace.traceparent() + "|" + trace.tracestate();
  };
  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(seen({}, ""), "|");
  EXPECT_EQ(seen({{"traceparent", parent}, {"tracestate", "a=1"}}, ""), parent + "|a=1");
  EXPECT_EQ(seen({{"traceparent", parent}, {"tracestate", "a=1"}, {"tracestate", "b=2"}}, ""), parent + "|a=1,b=2");
  EXPECT_EQ(seen({{"traceparent", parent}, {"tracestate", "a=1"}}, "00-own"), "00-own|");
  // What is broken costs no answer.
  EXPECT_EQ(seen({{"traceparent", parent}, {"traceparent", parent}}, ""), "|");
  EXPECT_EQ(seen({{"tracestate", "a=1"}}, ""), "|");
  EXPECT_EQ(seen({{"traceparent", std::string(257, 'a')}}, ""), "|");
  EXPECT_EQ(seen({{"traceparent", parent}, {"tracestate", std::string(513, 'a')}}, ""), parent + "|");
}

// ---- workers that come and go ----

TEST_F(FrontTest, AWorkerThatDiesEndsItsStreamsAndItsSuccessorServes) {
  StartRouter();
  FakeScript script;
  script.tokens = 2;
  auto worker = StartWorker(script);
  std::thread killer([&] {
    EXPECT_TRUE(Eventually([&] { return worker->live() == 1; }));
    worker->Stop(false);
  });
  const Answer answer = Generate(Request(100));
  killer.join();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("the worker was lost"));
  const int port = worker->port();
  worker.reset();
  auto successor = StartWorker({}, {.incarnation = 2, .port = port});  // on the same address
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(Generate(Request(3)).status.ok());
  ExpectClean(*successor);
}

TEST_F(FrontTest, AWorkersGoodbyeIsHeardAtOnce) {
  StartRouter();
  auto worker = StartWorker();
  worker->Stop(true);
  EXPECT_TRUE(worker->announced().ok()) << worker->announced();
  EXPECT_EQ(Generate(Request(3)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(Serving());
  EXPECT_EQ(State().workers(0).state(), pb::WORKER_STATE_GONE);
}

TEST_F(FrontTest, AForeignModelIsRefused) {
  StartRouter();
  FakeWorker worker({.model_hash = "zzz"}, {}, router_->port());
  EXPECT_TRUE(Eventually([&] { return worker.announce_ended(); }));
  EXPECT_THAT(std::string(worker.announced().message()), HasSubstr("start both with the same --model"));
}

TEST_F(FrontTest, ErrorsOfTheWorkerKeepTheirClass) {
  StartRouter();
  FakeScript failing;
  failing.tokens = 1;
  failing.fail_after = absl::StatusCode::kInternal;
  auto worker = StartWorker(failing);
  EXPECT_EQ(Generate(Request(5)).status.error_code(), grpc::StatusCode::INTERNAL);
  FakeScript invalid;
  invalid.refuse = pb::INVALID_REQUEST;
  worker->SetScript(invalid);
  EXPECT_EQ(Generate(Request(5)).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  FakeScript never;
  never.refuse = pb::NEVER_FITS;
  worker->SetScript(never);
  EXPECT_EQ(Generate(Request(5)).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectClean(*worker);
}

TEST_F(FrontTest, AFullQueueSaysWhenToComeBack) {
  ServerOptions options;
  options.core.queue.limit = 1;
  StartRouter(options);
  FakeScript script;
  script.tokens = 1;
  auto worker = StartWorker(script, {.max_running = 1});
  grpc::ClientContext first, second, third;
  auto running = stub_->Generate(&first, Request(100));
  ASSERT_TRUE(Eventually([&] { return worker->live() == 1; }));
  auto queued = stub_->Generate(&second, Request(100));
  ASSERT_TRUE(Eventually([&] { return State().queued() == 1; }));
  const Answer refused = Generate(Request(100), third);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(third.GetServerTrailingMetadata().contains("retry-after-ms"));
  first.TryCancel();
  second.TryCancel();
  running->Finish();
  queued->Finish();
  ExpectClean(*worker);
}

// ---- the process ----

TEST_F(FrontTest, APortInUseIsAnError) {
  StartRouter();
  ServerOptions options;
  options.grpc_port = router_->port();
  const auto second = RouterServer::Start(options, model_->served());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
  options.host = "no.such.host.invalid";
  EXPECT_FALSE(RouterServer::Start(options, model_->served()).ok());
}

TEST_F(FrontTest, ShutdownEndsRunningStreams) {
  StartRouter();
  FakeScript script;
  script.tokens = 1;
  auto worker = StartWorker(script);
  std::thread stopper([&] {
    EXPECT_TRUE(Eventually([&] { return worker->live() == 1; }));
    router_->Shutdown();
  });
  const Answer answer = Generate(Request(100));
  stopper.join();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(answer.status.error_message(), "router is shutting down");
  EXPECT_TRUE(Eventually([&] { return worker->live() == 0; }));
}

}  // namespace
}  // namespace sluice::router
