#include "router/grpc_front.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "router/trace_context.h"
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

absl::StatusOr<pb::GenerateRequest> Parse(const grpc::ByteBuffer& bytes) {
  const std::string flat = Flatten(bytes);
  if (absl::Status status = CheckWire(*pb::GenerateRequest::descriptor(), flat); !status.ok()) return status;
  pb::GenerateRequest request;
  if (!request.ParseFromString(flat)) {
    return absl::InvalidArgumentError("the message is not a valid sluice.v1.GenerateRequest");
  }
  return request;
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateService::Generate(grpc::CallbackServerContext* context,
                                                                      const grpc::ByteBuffer* request) {
  const absl::Time received = MonotonicNow();
  const std::shared_ptr<GenerateCall> call = GenerateCall::Make(calls_, context, limits_);
  absl::StatusOr<pb::GenerateRequest> parsed = Parse(*request);
  absl::Status status = parsed.status();
  if (status.ok()) TakeTrace(context->client_metadata(), *parsed);
  if (status.ok()) status = calls_->Start(call->id(), *parsed, received, TimeLeft(*context));
  if (!status.ok()) call->Refuse(status);
  return call->Reactor();
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

grpc::ServerUnaryReactor* ClusterService::Drain(grpc::CallbackServerContext* context, const pb::DrainRequest* request,
                                                pb::DrainResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Ask([this, reactor, wanted = *request](const RouterCore& core) {
    const pb::ClusterState state = core.State();
    for (const pb::WorkerStatus& worker : state.workers()) {
      if (worker.state() == pb::WORKER_STATE_GONE) continue;
      if (absl::StrCat(worker.host(), ":", worker.port()) != wanted.worker()) continue;
      loop_->Post(DrainWorker{worker.incarnation(), wanted.hand_over()});
      return reactor->Finish(grpc::Status::OK);
    }
    reactor->Finish(
        grpc::Status(grpc::StatusCode::NOT_FOUND, absl::StrCat("worker: none is alive at \"", wanted.worker(),
                                                               "\"; `sluice status` shows HOST and PORT of each")));
  });
  return reactor;
}

}  // namespace sluice::router
