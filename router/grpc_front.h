// The public gRPC services.
//
// Generate takes raw bytes, because protobuf hides what a client got wrong (wire_check.h). Parsing, validation and
// tokenization run on gRPC's threads; the core's thread only moves tokens.
#pragma once

#include "proto/serving.grpc.pb.h"
#include "router/calls.h"
#include "router/event_loop.h"
#include "router/generate_call.h"

namespace sluice::router {

class GenerateService final : public pb::Inference::WithRawCallbackMethod_Generate<pb::Inference::Service> {
 public:
  // `calls` must outlive the service.
  GenerateService(Calls* calls, const CallLimits& limits) : calls_(calls), limits_(limits) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;

 private:
  Calls* const calls_;
  const CallLimits limits_;
};

class ClusterService final : public pb::Cluster::CallbackService {
 public:
  explicit ClusterService(EventLoop* loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* GetState(grpc::CallbackServerContext* context, const pb::GetStateRequest* request,
                                     pb::ClusterState* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const pb::DrainRequest* request,
                                  pb::DrainResponse* response) override;

 private:
  EventLoop* const loop_;
};

}  // namespace sluice::router
