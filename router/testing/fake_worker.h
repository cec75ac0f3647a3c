// A scripted worker over real gRPC, for tests of the router's edge: announces itself, serves `Worker.Work`, and answers
// requests as the script says. It computes nothing: token i of every answer is script.ids[i % size].
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.grpc.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

struct FakeScript {
  bool answer_reserve = true;
  int tokens = 1 << 30;  // then it computes for ever
  std::vector<int32_t> ids = {5};
  int top_logprobs = 0;
  int tokens_per_message = 1;
  pb::ErrorReason refuse = pb::ERROR_REASON_UNSPECIFIED;
  absl::StatusCode fail_after = absl::StatusCode::kOk;  // after `tokens`: Failed with this
};

struct FakeWorkerOptions {
  uint64_t incarnation = 1;
  int port = 0;
  std::string model_hash = "abcdef";
  int64_t blocks = 100000;
  int max_running = 64;
};

class FakeWorker final : public pb::Worker::Service {
 public:
  FakeWorker(const FakeWorkerOptions& options, const FakeScript& script, int router_port);
  ~FakeWorker() override { Stop(false); }

  // Gone from one moment to the next, or with a goodbye. Idempotent.
  void Stop(bool goodbye);

  int port() const { return port_; }
  int live() const;  // requests that hold blocks
  int cancels() const { return cancels_; }
  int reserves() const { return reserves_; }
  bool announce_ended() const { return announce_ended_; }
  absl::Status announced() const;  // how the Announce stream ended; OK while it is open
  void SetScript(const FakeScript& script);

  grpc::Status Work(grpc::ServerContext* context,
                    grpc::ServerReaderWriter<pb::WorkerMessage, pb::RouterMessage>* stream) override;

 private:
  using Stream = grpc::ServerReaderWriter<pb::WorkerMessage, pb::RouterMessage>;
  struct Job {
    pb::RequestKey key;
    FakeScript script;
    int next = 0;
    int max_tokens = 0;
  };

  void Announce(int router_port);
  void OnMessage(const pb::RouterMessage& message, Stream* stream);
  void OnReserve(const pb::Reserve& reserve, pb::WorkerMessage& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Produce(Stream* stream, const std::atomic<bool>* over);
  bool Step(Job& job, pb::WorkerMessage& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FakeWorkerOptions options_;
  int port_ = 0;
  std::atomic<int> cancels_ = 0;
  std::atomic<int> reserves_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> announce_ended_ = false;

  mutable absl::Mutex mutex_;  // also held while writing: sync streams take one writer
  FakeScript script_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_lease_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status announced_ ABSL_GUARDED_BY(mutex_);
  grpc::ServerContext* work_context_ ABSL_GUARDED_BY(mutex_) = nullptr;

  std::unique_ptr<grpc::Server> server_;
  grpc::ClientContext announce_context_;
  std::atomic<bool> goodbye_ = false;
  std::thread announcer_;
};

}  // namespace sluice::router
