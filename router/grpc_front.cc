#include "router/grpc_front.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "router/cluster_resources.h"
#include "router/prompt_tokens.h"
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

// The tenant of the call's key, empty without keys; nothing: it shows none that counts.
std::optional<std::string> TenantOf(const ApiKeys& keys, const grpc::CallbackServerContext& context) {
  if (keys.empty()) return "";
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return std::nullopt;
  return keys.Tenant(std::string_view(found->second.data(), found->second.size()));
}

constexpr char kNoKey[] = "the API key is missing or wrong; send it as metadata, \"authorization: Bearer KEY\"";

// The reactor of a refused call; null: it may go on.
grpc::ServerUnaryReactor* RefuseStranger(const ApiKeys& keys, grpc::CallbackServerContext* context) {
  if (TenantOf(keys, *context).has_value()) return nullptr;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status(grpc::StatusCode::UNAUTHENTICATED, kNoKey));
  return reactor;
}

template <typename Response>
grpc::ServerUnaryReactor* FinishWith(grpc::CallbackServerContext* context, absl::StatusOr<Response> answer,
                                     Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status& status = answer.status();
  if (answer.ok()) *response = *std::move(answer);
  reactor->Finish(grpc::Status(grpc::StatusCode(status.code()), std::string(status.message())));
  return reactor;
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                                       const grpc::ByteBuffer* request) {
  const absl::Time received = MonotonicNow();
  const std::shared_ptr<GenerateCall> call = GenerateCall::Make(calls_, context, limits_);
  const std::optional<std::string> tenant = TenantOf(keys_, *context);
  absl::StatusOr<pb::GenerateRequest> parsed = absl::UnauthenticatedError(kNoKey);
  if (tenant.has_value()) parsed = Parse(*request);
  absl::Status status = parsed.status();
  if (status.ok() && !tenant->empty()) parsed->set_tenant(*tenant);
  if (status.ok()) TakeTrace(context->client_metadata(), *parsed);
  if (status.ok()) status = calls_->Start(call->id(), *parsed, received, TimeLeft(*context));
  if (!status.ok()) call->Refuse(status);
  return call->Reactor();
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const pb::TokenizeRequest* request,
                                                     pb::TokenizeResponse* response) {
  if (grpc::ServerUnaryReactor* refused = RefuseStranger(keys_, context)) return refused;
  return FinishWith(context, router::Tokenize(*request, calls_->model(), absl::Now()), response);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const pb::DetokenizeRequest* request,
                                                       pb::DetokenizeResponse* response) {
  if (grpc::ServerUnaryReactor* refused = RefuseStranger(keys_, context)) return refused;
  return FinishWith(context, router::Detokenize(*request, calls_->model()), response);
}

grpc::ServerUnaryReactor* ClusterService::GetState(grpc::CallbackServerContext* context, const pb::GetStateRequest*,
                                                   pb::ClusterState* response) {
  if (grpc::ServerUnaryReactor* refused = RefuseStranger(keys_, context)) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Ask([reactor, response](const RouterCore& core) {
    *response = core.State();
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::ListRequests(grpc::CallbackServerContext* context,
                                                       const pb::ListRequestsRequest* request,
                                                       pb::RequestList* response) {
  if (grpc::ServerUnaryReactor* refused = RefuseStranger(keys_, context)) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const int limit = request->limit() == 0 ? kRequestsShown : request->limit();
  if (limit < 1 || limit > kMaxRequestsShown) {
    reactor->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 absl::StrCat("limit: must be in [1, ", kMaxRequestsShown, "], got ", limit)));
    return reactor;
  }
  loop_->Ask([reactor, response, limit](const RouterCore& core) {
    *response = core.Requests(limit, MonotonicNow());
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::Drain(grpc::CallbackServerContext* context, const pb::DrainRequest* request,
                                                pb::DrainResponse*) {
  if (grpc::ServerUnaryReactor* refused = RefuseStranger(keys_, context)) return refused;
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
