// A worker, composed: model, backend, engine, engine loop, role, Work service, registration.
//
// Start order: look whether the port is free -> open the model -> backend -> engine -> role -> listen -> announce;
// nothing is announced that does not serve yet. Stop order: say good-bye to the routers, fail what runs with
// DRAINING_WORKER, close the streams, end the threads. The role's own threads and links are the last to go, when
// nothing can call them any more; what they still post to the loop is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "kernels/backend.h"
#include "proto/discovery/key_watcher.h"
#include "worker/engine_loop.h"
#include "worker/kv_watch.h"
#include "worker/listener.h"
#include "worker/options.h"
#include "worker/progress_watch.h"
#include "worker/rank_group.h"
#include "worker/registration.h"
#include "worker/report_board.h"
#include "worker/request_table.h"
#include "worker/role_factory.h"
#include "worker/work_service.h"
#include "worker/worker_core.h"

namespace sluice::worker {

class WorkerServer {
 public:
  // `on_engine_error` is called once, on the engine thread; engine_error() is set by then. An error is one line that
  // names the thing and the next step.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerOptions& options, const RoleFactory& make_role,
                                                             std::function<void()> on_engine_error);
  ~WorkerServer();

  // Takes less than 2 s. False if the engine is still inside a step, which nothing can interrupt: the process must then
  // end without destroying this object.
  bool Stop();

  const v1::WorkerInfo& info() const { return info_; }
  absl::Status engine_error() const;

 private:
  WorkerServer() = default;
  absl::Status ReadSecrets(const WorkerOptions& options);
  absl::Status OpenEngine(const WorkerOptions& options);
  absl::Status StartRanks(const WorkerOptions& options, engine::EngineOptions& engine_options);
  absl::Status Profile();
  void JoinPools(const WorkerOptions& options);
  void OnLostRank(const absl::Status& lost);
  absl::Status MakeRole(const WorkerOptions& options, const RoleFactory& make_role,
                        std::function<void()> on_engine_error);
  absl::Status Serve(const WorkerOptions& options);
  void FindRouters(const discovery::RegistryAddress& registry);
  void ReportSoon();
  void OnStuck(bool stuck);

  std::unique_ptr<engine::ModelFile> file_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<RankGroup> ranks_;  // null for one rank; the engine tells them to stop
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<RankKv> rank_kv_;  // null but where ranks have KV pools of their own
  std::unique_ptr<LocalEngine> port_;
  ClusterKey key_;
  TransportSecurity security_;
  v1::WorkerInfo info_;
  ReportBoard board_;
  mutable absl::Mutex mutex_;
  absl::Status engine_error_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_engine_error_ ABSL_GUARDED_BY(mutex_);  // set once there is a loop
  // Whether the role's threads, which live longer than the registration, may use it.
  absl::Mutex reporting_mutex_;
  bool reporting_ ABSL_GUARDED_BY(reporting_mutex_) = false;
  // Each uses those above it, and dies before them.
  std::unique_ptr<RequestTable> requests_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<KvWatch> kv_watch_;  // null: KV in the host's memory
  std::unique_ptr<RoleInstance> role_;
  std::unique_ptr<WorkerCore> core_;
  std::unique_ptr<WorkService> service_;
  Listening listening_;
  std::unique_ptr<Registration> registration_;
  std::unique_ptr<discovery::KeyWatcher> routers_;  // null without a registry; tells registration_
  std::unique_ptr<ProgressWatch> progress_;
};

}  // namespace sluice::worker
