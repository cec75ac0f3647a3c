// The public gRPC services: turns calls into events for the core and the core's answers into responses.
//
// Generate takes raw bytes, because protobuf hides what a client got wrong (wire_check.h). Parsing, validation and
// tokenization run on gRPC's threads; the core's thread only moves tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proto/serving.grpc.pb.h"
#include "router/event_loop.h"
#include "router/generate_call.h"
#include "router/validate.h"

namespace sluice::router {

class GenerateService final : public pb::Inference::WithRawCallbackMethod_Generate<pb::Inference::Service> {
 public:
  // `model` must outlive the service, and `post` must be callable until every call has ended.
  GenerateService(const ServedModel* model, const CallLimits& limits, std::function<void(Event)> post);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;

  // From the core's thread.
  void Deliver(const ClientTokens& event);
  void Deliver(const ClientEnd& event);
  void SetTokenCapacity(int tokens) { capacity_ = tokens; }

 private:
  absl::StatusOr<ValidRequest> Read(const grpc::ByteBuffer& bytes);
  std::shared_ptr<GenerateCall> Find(uint64_t call);
  void Ended(uint64_t call);
  uint64_t Draw();

  const ServedModel* const model_;
  const CallLimits limits_;
  const GenerateCall::Owner owner_;
  std::atomic<int> capacity_ = 0;

  absl::Mutex mutex_;
  std::mt19937_64 rng_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint64_t, std::shared_ptr<GenerateCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

class ClusterService final : public pb::Cluster::CallbackService {
 public:
  explicit ClusterService(EventLoop* loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* GetState(grpc::CallbackServerContext* context, const pb::GetStateRequest* request,
                                     pb::ClusterState* response) override;

 private:
  EventLoop* const loop_;
};

}  // namespace sluice::router
