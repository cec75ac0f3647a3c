// A worker as the router sees it: obeys worker.proto as the real ones do (worker/, prefill_worker/, decode_worker/),
// with a model in place of the engine. One class for all roles: a job is a prompt to hand over, a lease that awaits KV,
// or a lease that computes its prompt, and the step does not care.
//
// Kept from the real ones: a Reserve is answered at once; every granted request has at most one end, and none where its
// stream ended or it was released; Failed comes when the blocks are free; a request belongs to the stream that brought
// it; leases and deadlines run by themselves; the first token never waits for the transfer; the transfer opens with the
// first chunk; D's blocks are free when nothing writes to them any more. Left out: preemption, drafts, several routers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "simulation/kv_message.h"
#include "simulation/model_job.h"
#include "simulation/prefix_cache_model.h"
#include "simulation/rng.h"
#include "simulation/schedule.h"
#include "simulation/worker_model.h"

namespace sluice::simulation {

class ModelWorker;

// What a worker asks of the world around it.
class WorkerSurroundings {
 public:
  virtual ~WorkerSurroundings() = default;
  virtual void ToRouter(ModelWorker& from, uint64_t stream, pb::WorkerMessage message) = 0;
  virtual void CloseStream(ModelWorker& from, uint64_t stream, const absl::Status& why) = 0;
  virtual void ToPeer(ModelWorker& from, uint64_t peer, KvMessage message) = 0;  // dropped where the pair is not up
  virtual bool Paired(const ModelWorker& one, uint64_t peer) const = 0;
  virtual const google::protobuf::RepeatedPtrField<pb::PairStatus>& PairsOf(const ModelWorker& worker) = 0;
  virtual void ReportSoon(ModelWorker& worker) = 0;
  virtual absl::Time FrozenUntil(const ModelWorker& worker) const = 0;
};

class ModelWorker {
 public:
  ModelWorker(uint64_t incarnation, const WorkerModel& model, WorkerSurroundings& world, Schedule& schedule, Rng& rng);

  void OnMessage(uint64_t stream, const pb::RouterMessage& message);
  void OnStreamEnd(uint64_t stream);
  void OnKv(uint64_t peer, const KvMessage& message);
  void OnPairDown(uint64_t peer);

  // ---- what happens to it ----
  void Drain(bool hand_over = false);  // what it has goes on elsewhere
  void ShutDown();                     // says of every request that it ends, and closes its streams
  void StickFor(absl::Duration time);  // no step ends before that
  void SlowDown(double factor) { slow_ = factor; }
  void set_model(const WorkerModel& model) { model_ = model; }

  pb::WorkerReport TakeReport();  // with a number of its own

  uint64_t incarnation() const { return incarnation_; }
  const WorkerModel& model() const { return model_; }
  pb::Role role() const { return model_.role; }
  bool draining() const { return draining_; }
  bool idle() const { return jobs_.empty() && promised_ == 0; }
  int64_t promised() const { return promised_; }
  int running() const;             // rows
  int64_t waiting_tokens() const;  // of prompts
  const std::map<uint64_t, ModelJob>& jobs() const { return jobs_; }
  bool Has(const std::string& request_id, int attempt) const;

  struct Totals {
    int64_t steps = 0;
    int64_t prompt_tokens = 0;
    int64_t hit_tokens = 0;
    int64_t answer_tokens = 0;
    int64_t replayed = 0;  // requests that came with a part of their answer
    int64_t expired = 0;   // leases
    int64_t injected = 0;  // failures of requests
    int64_t refused = 0;
    int64_t bad_transfers = 0;
    double execute_seconds = 0;
    int64_t rows = 0;
  };
  const Totals& totals() const { return totals_; }

 private:
  using Key = std::pair<std::string, int>;

  // ---- messages ----
  void OnHello(uint64_t stream, const pb::RouterHello& hello);
  void OnReserve(uint64_t stream, const pb::Reserve& reserve);
  void OnPrefill(uint64_t stream, const pb::Prefill& prefill);
  bool CheckNew(uint64_t stream, const pb::RequestKey& key, int64_t remaining_ms);
  ModelJob NewJob(uint64_t stream, const pb::RequestKey& key, const pb::SequenceSpec& spec, int64_t remaining_ms);
  bool Promise(const ModelJob& job);
  ModelJob& Keep(ModelJob job);
  void Refuse(uint64_t stream, const pb::RequestKey& key, const pb::ErrorInfo& error);
  ModelJob* Find(uint64_t stream, const pb::RequestKey& key);
  void DropRequestsOf(uint64_t stream);

  // ---- ends ----
  void Stop(ModelJob& job, const pb::ErrorInfo& why, bool says);  // the job may be gone afterwards
  void Leave(ModelJob& job, const pb::ErrorInfo& why, bool says);
  void End(uint64_t id, const pb::ErrorInfo* words);  // its blocks are free
  void EndLeaving(uint64_t id);
  void SetTimer(absl::Time at);
  void RunTimers();

  // ---- steps (model_worker_step.cc) ----
  struct Planned {
    uint64_t job = 0;
    int tokens = 0;  // of the prompt; 0: its rows
  };
  struct Step {
    std::vector<Planned> planned;
    int steps = 1;
  };
  void MaybeStep();
  Step Plan();
  absl::Duration TimeOf(const Step& step) const;
  void Commit(Step step);
  void CommitChunk(ModelJob& job, int tokens);
  void FirstTokens(ModelJob& job);
  void HandOver(ModelJob& job, KvMessage commit, bool goes_on);
  void SendPieces(ModelJob& job, int tokens);
  void Decode(ModelJob& job, int steps);
  void AddTokens(ModelJob& job, ModelJob::Choice& choice, int count, bool with_prompt);
  bool EndsWith(const ModelJob& job, const ModelJob::Choice& choice, int32_t token) const;
  void AddFinished(ModelJob& job, const ModelJob::Choice& choice, int32_t token, bool last);
  void WatchProgress(uint64_t step);

  // ---- saying ----
  pb::WorkerEvent& Out(uint64_t stream, const pb::RequestKey& key);
  void AddProgress(ModelJob& job, const char* name, int64_t amount);
  void Flush();

  // `what` happens if the worker still lives then; later, if it stands still.
  void At(absl::Time at, Schedule::What what);

  const uint64_t incarnation_;
  WorkerModel model_;
  WorkerSurroundings& world_;
  Schedule& schedule_;
  Rng& rng_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  std::set<uint64_t> streams_;         // that are open
  std::map<uint64_t, ModelJob> jobs_;  // by id, so by arrival
  std::map<std::pair<uint64_t, Key>, uint64_t> by_key_;
  std::map<uint64_t, pb::WorkerMessage> out_;  // by stream
  PrefixCacheModel cache_;
  uint64_t next_id_ = 1;
  int64_t promised_ = 0;
  uint64_t reports_ = 0;
  bool draining_ = false;
  bool stuck_ = false;
  bool stepping_ = false;
  absl::Time stuck_until_ = absl::InfinitePast();
  absl::Time step_began_;
  absl::Time pieces_sent_ = absl::InfinitePast();  // all of them
  absl::Time timer_at_ = absl::InfiniteFuture();
  absl::Time grace_end_ = absl::InfinitePast();  // of leases: it has not listened for a while
  double slow_ = 1;
  double step_ms_ = 0;  // moving average
  Totals totals_;
};

}  // namespace sluice::simulation
