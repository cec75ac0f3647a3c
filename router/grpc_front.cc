#include "router/grpc_front.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "router/wire_check.h"

namespace sluice::router {
namespace {

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

absl::Duration TimeLeft(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
  return absl::FromChrono(deadline - std::chrono::system_clock::now());
}

std::mt19937_64 SeededFromDevice() {
  std::random_device device;
  std::seed_seq seeds{device(), device(), device(), device(), device(), device(), device(), device()};
  return std::mt19937_64(seeds);
}

}  // namespace

GenerateService::GenerateService(const ServedModel* model, const CallLimits& limits, std::function<void(Event)> post)
    : model_(model),
      limits_(limits),
      owner_{std::move(post), [this](uint64_t call) { Ended(call); }},
      rng_(SeededFromDevice()) {}

absl::StatusOr<ValidRequest> GenerateService::Read(const grpc::ByteBuffer& bytes) {
  const std::string flat = Flatten(bytes);
  if (absl::Status status = CheckWire(*pb::GenerateRequest::descriptor(), flat); !status.ok()) return status;
  pb::GenerateRequest request;
  if (!request.ParseFromString(flat)) {
    return absl::InvalidArgumentError("the message is not a valid sluice.v1.GenerateRequest");
  }
  return Validate(request, *model_, capacity_, Draw());
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateService::Generate(grpc::CallbackServerContext* context,
                                                                      const grpc::ByteBuffer* request) {
  const absl::Time received = MonotonicNow();
  uint64_t id;
  std::shared_ptr<GenerateCall> call;
  {
    absl::MutexLock lock(&mutex_);
    id = next_call_++;
    call = std::make_shared<GenerateCall>(&owner_, id, context, limits_);
    calls_[id] = call;
  }
  absl::StatusOr<ValidRequest> valid = Read(*request);
  if (!valid.ok()) {
    call->Refuse(valid.status());
    return call.get();
  }
  call->Accept(AnswerStream(model_->tokenizer, *valid, received));
  const absl::Duration left = std::min(valid->timeout, TimeLeft(*context));
  owner_.post(Submit{id, std::move(valid->request_id), std::move(valid->sequence), received, received + left});
  return call.get();
}

uint64_t GenerateService::Draw() {
  absl::MutexLock lock(&mutex_);
  return rng_();
}

std::shared_ptr<GenerateCall> GenerateService::Find(uint64_t call) {
  absl::MutexLock lock(&mutex_);
  auto it = calls_.find(call);
  return it == calls_.end() ? nullptr : it->second;
}

void GenerateService::Ended(uint64_t call) {
  std::shared_ptr<GenerateCall> last;  // destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  last = std::move(calls_[call]);
  calls_.erase(call);
}

void GenerateService::Deliver(const ClientTokens& event) {
  if (auto call = Find(event.call); call != nullptr) call->OnTokens(event);
}

void GenerateService::Deliver(const ClientEnd& event) {
  if (auto call = Find(event.call); call != nullptr) call->OnEnd(event);
}

grpc::ServerUnaryReactor* ClusterService::GetState(grpc::CallbackServerContext* context, const pb::GetStateRequest*,
                                                   pb::ClusterState* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Ask([reactor, response](const RouterCore& core) {
    *response = core.State();
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace sluice::router
