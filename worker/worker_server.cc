#include "worker/worker_server.h"

#include <sched.h>
#include <string.h>

#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/engine_shape.h"
#include "engine/parallel/tensor_split.h"
#include "glog/logging.h"
#include "grpcpp/health_check_service_interface.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/error_info.h"
#include "worker/open_engine.h"
#include "worker/pool_view.h"
#include "worker/worker_info.h"

namespace sluice::worker {
namespace {

constexpr char kHealthName[] = "sluice.v1.Worker";
// Together below the two seconds that Stop promises.
constexpr absl::Duration kLeaveTimeout = absl::Milliseconds(400);
constexpr absl::Duration kStepTimeout = absl::Milliseconds(1200);
constexpr absl::Duration kFarewell = absl::Milliseconds(100);
constexpr std::chrono::milliseconds kStreamTimeout{300};
constexpr absl::Duration kProfileTime = absl::Milliseconds(100);

uint64_t DrawIncarnation() {
  std::random_device random;
  uint64_t incarnation = 0;
  while (incarnation == 0) incarnation = uint64_t{random()} << 32 | random();
  return incarnation;
}

// The engine speaks of its options; people gave flags.
absl::Status InFlags(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{"max_kv_bytes", "--kv-bytes"},
                                                                            {"num_blocks", "--kv-blocks"},
                                                                            {"max_context", "--max-context"},
                                                                            {"block_size", "--block-size"},
                                                                            {"max_step_tokens", "--max-step-tokens"},
                                                                            {"max_step_seqs", "--max-seqs"}}));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(const WorkerOptions& options,
                                                                  const RoleFactory& make_role,
                                                                  std::function<void()> on_engine_error) {
  if (absl::Status status = PinTo(options); !status.ok()) return status;
  // Before the seconds that a model takes.
  if (absl::Status status = CheckCanListen(options.host, options.port); !status.ok()) return status;
  std::unique_ptr<WorkerServer> server(new WorkerServer());
  if (absl::Status status = server->ReadSecrets(options); !status.ok()) return status;
  if (absl::Status status = server->OpenEngine(options); !status.ok()) return status;
  if (absl::Status status = server->MakeRole(options, make_role, std::move(on_engine_error)); !status.ok()) {
    return status;
  }
  if (absl::Status status = server->Serve(options); !status.ok()) return status;
  return server;
}

absl::Status WorkerServer::ReadSecrets(const WorkerOptions& options) {
  absl::StatusOr<ClusterKey> key = ClusterKey::Read(options.cluster_key);
  if (!key.ok()) {
    return absl::Status(key.status().code(), absl::StrCat("--cluster-key: ", std::string(key.status().message())));
  }
  absl::StatusOr<TransportSecurity> security = TransportSecurity::Read(options.tls);
  if (!security.ok()) {
    return absl::Status(security.status().code(), absl::StrCat("--tls: ", std::string(security.status().message())));
  }
  key_ = *std::move(key);
  security_ = *std::move(security);
  return absl::OkStatus();
}

absl::Status WorkerServer::OpenEngine(const WorkerOptions& options) {
  auto opened = OpenModelAndBackend(options);
  if (!opened.ok()) return opened.status();
  file_ = std::move(opened->file);
  backend_ = std::move(opened->backend);
  engine::EngineOptions engine_options = ToEngineOptions(options);
  if (options.tp > 1) {
    if (absl::Status started = StartRanks(options, engine_options); !started.ok()) return InFlags(started);
  }
  auto engine = engine::Engine::Create(*file_, *backend_, engine_options);
  if (!engine.ok()) return InFlags(ranks_ != nullptr ? ranks_->Explain(engine.status()) : engine.status());
  engine_ = *std::move(engine);
  if (ranks_ != nullptr) {
    if (absl::Status ready = ranks_->AwaitReady(); !ready.ok()) return ready;
    JoinPools(options);
  }
  port_ = std::make_unique<LocalEngine>(*engine_);
  info_ = DescribeWorker(options, DrawIncarnation(), *file_, *backend_, *engine_);
  LOG(INFO) << "model \"" << info_.model() << "\", " << backend_->numerics_id() << ", " << options.tp << " ranks of "
            << ThreadsOf(options) << " threads, " << info_.blocks_total() << " blocks of " << options.block_size
            << " tokens, context " << info_.context_length();
  return options.profile ? Profile() : absl::OkStatus();
}

// While nothing is served yet: what routers plan with until they have seen more.
absl::Status WorkerServer::Profile() {
  const auto profile = engine_->Profile(absl::ToDoubleSeconds(kProfileTime));
  if (!profile.ok()) return ranks_ != nullptr ? ranks_->Explain(profile.status()) : profile.status();
  info_.set_prefill_tokens_per_s(profile->prefill_tokens_per_s);
  info_.set_decode_step_ms(profile->decode_step_ms);
  LOG(INFO) << absl::StrFormat("measured: %.0f tokens of a prompt a second, a step of one row in %.2f ms",
                               profile->prefill_tokens_per_s, profile->decode_step_ms);
  return absl::OkStatus();
}

absl::Status WorkerServer::StartRanks(const WorkerOptions& options, engine::EngineOptions& engine_options) {
  const auto split = engine::TensorSplit::Of(file_->config(), options.tp);
  if (!split.ok()) return absl::InvalidArgumentError(absl::StrCat("--tp: ", std::string(split.status().message())));
  size_t shared_pool = 0;
  if (!backend_->has_own_memory()) {
    const auto shape = engine::ShapeOf(file_->config(), *backend_, engine_options);
    if (!shape.ok()) return shape.status();
    shared_pool = kernels::CpuKvPoolBytes(shape->layout, shape->num_blocks);
  }
  auto ranks = RankGroup::Start(options, shared_pool, [this](const absl::Status& lost) { OnLostRank(lost); });
  if (!ranks.ok()) return ranks.status();
  ranks_ = *std::move(ranks);
  engine_options.collective = &ranks_->collective();
  engine_options.kv_memory = ranks_->kv_memory();
  return absl::OkStatus();
}

void WorkerServer::JoinPools(const WorkerOptions& options) {
  if (engine_->kv_device() == nullptr) return;  // all ranks share one
  const auto split = engine::TensorSplit::Of(file_->config(), options.tp);
  std::vector<RankKv::Heads> heads;
  for (int rank = 0; rank < options.tp; ++rank) {
    const engine::Part part = split->kv_heads(rank);
    heads.push_back({int(part.begin), int(part.end)});
  }
  rank_kv_ = std::make_unique<RankKv>(engine_->kv_layout(), ranks_->boxes(), std::move(heads), engine_->kv_device(),
                                      &ranks_->collective(), absl::Milliseconds(options.rank_timeout_ms));
  // One that stands still between steps, where NCCL waits for nothing. Ranks have their weights by now.
  ranks_->collective().set_patience(std::chrono::milliseconds(options.rank_timeout_ms));
}

// A step that is under way fails by itself; without one nobody else would notice.
void WorkerServer::OnLostRank(const absl::Status& lost) {
  LOG(ERROR) << lost.message();
  std::function<void()> notify;
  {
    absl::MutexLock lock(&mutex_);
    if (engine_error_.ok()) engine_error_ = lost;
    notify = on_engine_error_;
  }
  if (notify) notify();
}

absl::Status WorkerServer::MakeRole(const WorkerOptions& options, const RoleFactory& make_role,
                                    std::function<void()> on_engine_error) {
  EngineLoopOptions loop;
  // While a device computes, the CPU has time to plan the next step.
  if (backend_->has_own_memory() && options.plan_ahead) loop.steps_ahead = engine::Engine::kMaxStepsUnderWay;
  {
    absl::MutexLock lock(&mutex_);
    if (!engine_error_.ok()) return engine_error_;  // a rank was lost already
    on_engine_error_ = on_engine_error;
  }
  loop.on_engine_error = [this, notify = std::move(on_engine_error)](absl::Status status) {
    if (ranks_ != nullptr) status = ranks_->Explain(status);
    {
      absl::MutexLock lock(&mutex_);
      if (engine_error_.ok()) engine_error_ = status;
    }
    notify();
  };
  loop_ = std::make_unique<EngineLoop>(loop, board_);
  requests_ = std::make_unique<RequestTable>(absl::Milliseconds(options.lease_ms));
  kvtransfer::PoolView kv = PoolViewOf(*engine_, rank_kv_.get());
  if (kv.device != nullptr) {
    kv_watch_ = std::make_unique<KvWatch>(*kv.device, [this](const absl::Status& failed) { loop_->Fail(failed); });
    kv.device = kv_watch_.get();
  }
  auto role = make_role({.options = options,
                         .key = key_,
                         .security = security_,
                         .info = info_,
                         .kv = std::move(kv),
                         .engine = *port_,
                         .requests = *requests_,
                         .loop = *loop_,
                         .board = board_,
                         .report_soon = [this] { ReportSoon(); }});
  if (!role.ok()) return role.status();
  role_ = *std::move(role);
  core_ = std::make_unique<WorkerCore>(CoreOptions{info_.incarnation(), file_->config().vocab, key_}, *port_,
                                       *requests_, role_->role());
  return absl::OkStatus();
}

absl::Status WorkerServer::Serve(const WorkerOptions& options) {
  service_ = std::make_unique<WorkService>(*loop_);
  std::vector<grpc::Service*> services = role_->services();
  services.push_back(service_.get());
  auto listening = Listen(options.host, options.port, services, security_);
  if (!listening.ok()) return listening.status();
  listening_ = *std::move(listening);
  info_.mutable_work()->set_host(options.advertise.empty() ? options.host : options.advertise);
  info_.mutable_work()->set_port(listening_.port);
  *info_.mutable_ranks(0)->mutable_control() = info_.work();
  loop_->Start(*core_, *port_);
  listening_.server->GetHealthCheckService()->SetServingStatus(kHealthName, true);

  RegistrationOptions registration;
  registration.routers = options.routers;
  registration.info = info_;
  registration.key = key_;
  registration.on_drain = [this] { loop_->Drain(); };
  registration.on_peers = [this](std::map<uint64_t, std::string> peers) { role_->SetPeers(std::move(peers)); };
  registration_ = std::make_unique<Registration>(std::move(registration), board_);
  registration_->Start();
  FindRouters(options.registry);
  progress_ = std::make_unique<ProgressWatch>(
      absl::Milliseconds(options.stuck_after_ms), [this] { return loop_->TurnAge(); },
      [this](bool stuck) { OnStuck(stuck); });
  progress_->Start();
  absl::MutexLock lock(&reporting_mutex_);
  reporting_ = true;
  return absl::OkStatus();
}

void WorkerServer::FindRouters(const discovery::RegistryAddress& registry) {
  if (registry.embedded()) return;
  routers_ = std::make_unique<discovery::KeyWatcher>(
      registry, registry.routers(),
      [this](std::vector<std::string> routers) { registration_->SetRouters(std::move(routers)); });
  routers_->Start();
}

// Health is forward progress: the routers hear of it with the next report.
void WorkerServer::OnStuck(bool stuck) {
  if (stuck) {
    LOG(ERROR) << "the engine is stuck in one step; this worker takes no new work until it comes forward";
  } else {
    LOG(WARNING) << "the engine comes forward again";
  }
  board_.SetStuck(stuck);
  listening_.server->GetHealthCheckService()->SetServingStatus(!stuck);
  ReportSoon();
}

void WorkerServer::ReportSoon() {
  absl::MutexLock lock(&reporting_mutex_);
  if (reporting_) registration_->ReportSoon();
}

bool WorkerServer::Stop() {
  if (registration_ == nullptr) return true;
  {
    absl::MutexLock lock(&reporting_mutex_);
    reporting_ = false;
  }
  progress_->Stop();
  if (routers_ != nullptr) routers_->Stop();
  const absl::Status failed = engine_error();
  bool stopped = true;
  if (!failed.ok()) {
    // Requests hear why before the router hears that the worker leaves, which would end them without a reason.
    stopped = loop_->Stop(ErrorOfFailedEngine(failed), kStepTimeout);
    service_->AwaitEnds(kFarewell);
  }
  registration_->BeginLeave(kLeaveTimeout);
  listening_.server->GetHealthCheckService()->SetServingStatus(false);
  if (failed.ok()) {
    stopped = loop_->Stop(MakeError(v1::DRAINING_WORKER, "the worker is shutting down"), kStepTimeout);
  }
  listening_.server->Shutdown(std::chrono::system_clock::now() + kStreamTimeout);
  registration_->Stop(absl::ZeroDuration());
  return stopped;
}

WorkerServer::~WorkerServer() {
  Stop();
  if (ranks_ != nullptr) ranks_->ExpectEnd();  // or the end of a rank would be called a loss
}

absl::Status WorkerServer::engine_error() const {
  absl::MutexLock lock(&mutex_);
  return engine_error_;
}

}  // namespace sluice::worker
