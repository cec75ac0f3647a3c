// The public gRPC services. Where there are API keys, a call shows one as `authorization: Bearer KEY` among its
// metadata, or ends with UNAUTHENTICATED; its tenant is the key's.
//
// Generate takes raw bytes, because protobuf hides what a client got wrong (wire_check.h). Parsing, validation and
// tokenization run on gRPC's threads; the core's thread only moves tokens.
#pragma once

#include "proto/serving.grpc.pb.h"
#include "router/calls.h"
#include "router/event_loop.h"
#include "router/generate_call.h"
#include "router/http/api_keys.h"

namespace sluice::router {

class InferenceService final
    : public pb::Inference::WithRawCallbackMethod_Generate<pb::Inference::WithCallbackMethod_Tokenize<
          pb::Inference::WithCallbackMethod_Detokenize<pb::Inference::Service>>> {
 public:
  // `calls` must outlive the service.
  InferenceService(Calls* calls, const CallLimits& limits, const ApiKeys& keys)
      : calls_(calls), limits_(limits), keys_(keys) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const pb::TokenizeRequest* request,
                                     pb::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const pb::DetokenizeRequest* request,
                                       pb::DetokenizeResponse* response) override;

 private:
  Calls* const calls_;
  const CallLimits limits_;
  const ApiKeys keys_;
};

class ClusterService final : public pb::Cluster::CallbackService {
 public:
  ClusterService(EventLoop* loop, const ApiKeys& keys) : loop_(loop), keys_(keys) {}

  grpc::ServerUnaryReactor* GetState(grpc::CallbackServerContext* context, const pb::GetStateRequest* request,
                                     pb::ClusterState* response) override;
  grpc::ServerUnaryReactor* ListRequests(grpc::CallbackServerContext* context, const pb::ListRequestsRequest* request,
                                         pb::RequestList* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const pb::DrainRequest* request,
                                  pb::DrainResponse* response) override;

 private:
  EventLoop* const loop_;
  const ApiKeys keys_;
};

}  // namespace sluice::router
