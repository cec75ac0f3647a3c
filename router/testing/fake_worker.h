// A scripted worker of any role over real gRPC, for tests of the router's edge: announces itself, serves `Worker.Work`,
// and answers requests as the script says. It computes nothing: token i of every answer is script.ids[i % size]. Nor
// does it transfer anything: a prefill worker says that it handed over, a decode worker that it has the KV, each after
// its own delay.
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
#include "absl/time/time.h"
#include "proto/worker.grpc.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

struct FakeScript {
  bool answer_reserve = true;
  int tokens = 1 << 30;        // then it computes for ever
  absl::Duration delay;        // until the first word after the lease; of a decode worker: until it has the KV
  bool stop_at_first = false;  // a prefill worker: the answer is over with its first token
  std::vector<int32_t> ids = {5};
  int top_logprobs = 0;
  int tokens_per_message = 1;
  pb::ErrorReason refuse = pb::ERROR_REASON_UNSPECIFIED;
  absl::StatusCode fail_after = absl::StatusCode::kOk;  // after `tokens`: Failed with this
};

struct FakeWorkerOptions {
  absl::Duration step = absl::Microseconds(200);  // from one message to the next
  pb::Role role = pb::ROLE_BOTH;
  uint64_t incarnation = 1;
  int port = 0;
  bool fits = true;  // a prefill worker: its pairs come up
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
  int prefills() const { return prefills_; }
  int releases() const { return releases_; }
  pb::TraceContext last_trace() const;  // of the newest Reserve or Prefill
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
    std::vector<int32_t> scored;  // prompt tokens whose log-probabilities are asked for
    int prompt_top = 0;           // alternatives of each
    absl::Time start;
    uint64_t lease = 0;
    bool hands_over = false;  // a prefill worker: token 0 is not all
    bool awaits_kv = false;   // a decode worker, until it has said Committed
  };

  void Announce(int router_port);
  pb::WorkerInfo Info() const;
  pb::WorkerReport Report(uint64_t sequence) const;
  void OnMessage(const pb::RouterMessage& message, Stream* stream);
  void OnReserve(const pb::Reserve& reserve, pb::WorkerMessage& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Produce(Stream* stream, const std::atomic<bool>* over);
  void OnPrefill(const pb::Prefill& prefill, pb::WorkerMessage& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void TakePromptLogprobs(const pb::SequenceSpec& sequence, Job& job);
  bool Refuses(const pb::RequestKey& key, pb::WorkerMessage& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Step(Job& job, pb::WorkerMessage& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FakeWorkerOptions options_;
  int port_ = 0;
  std::atomic<int> cancels_ = 0;
  std::atomic<int> reserves_ = 0;
  std::atomic<int> prefills_ = 0;
  std::atomic<int> releases_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> announce_ended_ = false;

  mutable absl::Mutex mutex_;  // also held while writing: sync streams take one writer
  FakeScript script_ ABSL_GUARDED_BY(mutex_);
  pb::TraceContext last_trace_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_lease_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<uint64_t> peers_ ABSL_GUARDED_BY(mutex_);
  absl::Status announced_ ABSL_GUARDED_BY(mutex_);
  grpc::ServerContext* work_context_ ABSL_GUARDED_BY(mutex_) = nullptr;

  std::unique_ptr<grpc::Server> server_;
  grpc::ClientContext announce_context_;
  std::atomic<bool> goodbye_ = false;
  std::thread announcer_;
};

}  // namespace sluice::router
