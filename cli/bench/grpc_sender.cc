#include "cli/bench/grpc_sender.h"

#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cli/bench/http_words.h"
#include "cli/channel.h"
#include "proto/serving.grpc.pb.h"

namespace sluice::cli::bench {
namespace {

// One request; every completion of the queue is the next thing that it waits for.
struct Call {
  Recorder* recorder = nullptr;
  int index = 0;
  bool finishing = false;
  bool cancelled = false;
  bool reading = false;
  Counted counted;
  grpc::ClientContext context;
  v1::GenerateResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader;
};

class GrpcSender final : public Sender {
 public:
  GrpcSender(const SenderOptions& options, std::vector<std::shared_ptr<grpc::Channel>> channels) : options_(options) {
    for (auto& channel : channels) stubs_.push_back(v1::Inference::NewStub(channel));
    cluster_ = v1::Cluster::NewStub(channels.front());
    thread_ = std::thread([this] { Read(); });
  }
  ~GrpcSender() override {
    CancelAll();
    WaitUntilNothingRuns();  // a queue that was shut down takes no Finish
    queue_.Shutdown();
    thread_.join();
  }

  absl::StatusOr<TargetInfo> Ask() override;
  void Start(Recorder& recorder, int index, const PlannedRequest& planned) override;
  void CancelAll() override;

 private:
  void WaitUntilNothingRuns();
  void Read();
  void Step(Call* call, bool ok);
  void TakeResponse(Call* call);
  void End(Call* call);

  SenderOptions options_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
  std::unique_ptr<v1::Cluster::Stub> cluster_;
  grpc::CompletionQueue queue_;
  std::mutex mutex_;
  std::condition_variable none_left_;
  std::unordered_set<Call*> calls_;  // owned; a call leaves when it has ended
  std::thread thread_;
};

absl::StatusOr<TargetInfo> GrpcSender::Ask() {
  TargetInfo info;
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::ClusterState state;
    const grpc::Status status = cluster_->GetState(&context, v1::GetStateRequest(), &state);
    if (!status.ok()) return absl::UnavailableError(DescribeError(status));
    info.model = state.model();
    info.context = state.context_length();
  }
  // Nothing tells the size of the vocabulary but the refusal of an id that no vocabulary has. It reaches no worker.
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(std::numeric_limits<int32_t>::max());
  request.mutable_sampling()->set_max_tokens(1);
  v1::GenerateResponse response;
  auto reader = stubs_.front()->Generate(&context, request);
  while (reader->Read(&response)) {
  }
  info.vocabulary = VocabularyOf(reader->Finish().error_message());
  return info;
}

void GrpcSender::Start(Recorder& recorder, int index, const PlannedRequest& planned) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(planned.prompt.begin(), planned.prompt.end());
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_max_tokens(planned.max_tokens);
  sampling.set_temperature(float(options_.temperature));
  sampling.set_ignore_eos(options_.ignore_eos);
  sampling.set_seed(options_.seed + uint64_t(index));

  auto call = std::make_unique<Call>();
  call->recorder = &recorder;
  call->index = index;
  if (options_.timeout_s > 0) {
    call->context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::microseconds(int64_t(options_.timeout_s * 1e6)));
  }
  Call* const raw = call.get();
  {
    const std::lock_guard lock(mutex_);
    calls_.insert(call.release());
  }
  const auto& stub = stubs_[size_t(index) % stubs_.size()];
  raw->reader = stub->PrepareAsyncGenerate(&raw->context, request, &queue_);
  raw->reader->StartCall(raw);
}

void GrpcSender::CancelAll() {
  const std::lock_guard lock(mutex_);
  for (Call* call : calls_) {
    call->cancelled = true;
    call->context.TryCancel();
  }
}

void GrpcSender::WaitUntilNothingRuns() {
  std::unique_lock lock(mutex_);
  none_left_.wait(lock, [this] { return calls_.empty(); });
}

void GrpcSender::Read() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) Step(static_cast<Call*>(tag), ok);
}

void GrpcSender::Step(Call* call, bool ok) {
  if (call->finishing) return End(call);
  if (ok && call->reading) TakeResponse(call);
  if (!ok) {
    call->finishing = true;
    call->reader->Finish(&call->status, call);
    return;
  }
  call->reading = true;
  call->response.Clear();
  call->reader->Read(&call->response, call);
}

void GrpcSender::TakeResponse(Call* call) {
  int tokens = 0;
  for (const v1::ChoiceDelta& delta : call->response.choices()) tokens += delta.token_ids_size();
  call->recorder->Tokens(call->index, Clock::now(), tokens);
  if (!call->response.has_usage()) return;
  const v1::Usage& usage = call->response.usage();
  call->counted = {usage.prompt_tokens(), usage.cached_tokens(), usage.completion_tokens()};
}

void GrpcSender::End(Call* call) {
  const Clock::time_point now = Clock::now();
  bool ours = false;
  {
    const std::lock_guard lock(mutex_);
    ours = call->cancelled;
  }
  const grpc::StatusCode code = call->status.error_code();
  Outcome outcome = call->status.ok() ? Outcome::kDone : Outcome::kFailed;
  if ((ours && code == grpc::StatusCode::CANCELLED) || code == grpc::StatusCode::DEADLINE_EXCEEDED) {
    outcome = Outcome::kAbandoned;
  }
  call->recorder->Ended(call->index, now, outcome, call->status.ok() ? "" : DescribeError(call->status), call->counted);
  const std::lock_guard lock(mutex_);
  calls_.erase(call);
  delete call;
  if (calls_.empty()) none_left_.notify_all();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sender>> OpenGrpcSender(const SenderOptions& options) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < options.connections; ++i) {
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Connect(options.address, absl::Seconds(5), i > 0);
    if (!channel.ok()) return channel.status();
    channels.push_back(*std::move(channel));
  }
  return std::make_unique<GrpcSender>(options, std::move(channels));
}

}  // namespace sluice::cli::bench
