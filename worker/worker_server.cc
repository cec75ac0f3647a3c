#include "worker/worker_server.h"

#include <sched.h>
#include <string.h>

#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/speculation/prompt_lookup_drafter.h"
#include "glog/logging.h"
#include "grpcpp/health_check_service_interface.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/error_info.h"
#include "worker/host_kv.h"
#include "worker/monotonic_clock.h"
#include "worker/worker_info.h"

namespace sluice::worker {
namespace {

constexpr char kHealthName[] = "sluice.v1.Worker";
// Together below the two seconds that Stop promises.
constexpr absl::Duration kLeaveTimeout = absl::Milliseconds(400);
constexpr absl::Duration kStepTimeout = absl::Milliseconds(1200);
constexpr std::chrono::milliseconds kStreamTimeout{300};

absl::Status Pin(const std::vector<int>& cpus) {
  if (cpus.empty()) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= CPU_SETSIZE) return absl::InvalidArgumentError(absl::StrCat("--cpus: there is no core ", cpu));
    CPU_SET(cpu, &set);
  }
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--cpus: cannot stay on these cores (", strerror(errno), "); see `nproc` and `taskset -p $$`"));
}

int AllowedCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

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

engine::EngineOptions ToEngineOptions(const WorkerOptions& options) {
  engine::EngineOptions to;
  to.block_size = options.block_size;
  to.num_blocks = options.kv_blocks;
  to.max_kv_bytes = options.kv_bytes;
  to.max_context = options.max_context;
  to.scheduler.max_step_tokens = options.max_step_tokens;
  to.scheduler.max_step_seqs = options.max_seqs;
  to.prefix_caching = options.prefix_cache;
  to.packed_folder = options.packed_cache;
  to.step_target_seconds = 1e-3 * options.step_target_ms;
  to.seconds = [] { return absl::ToDoubleSeconds(MonotonicNow() - absl::UnixEpoch()); };
  if (options.drafts > 0) {
    to.scheduler.max_drafts = options.drafts;
    to.scheduler.max_step_logits = 2 * options.max_seqs;
    to.new_drafter = [most = options.drafts] {
      return std::make_unique<engine::PromptLookupDrafter>(engine::PromptLookupOptions{.max_drafts = most});
    };
  }
  return to;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(const WorkerOptions& options,
                                                                  const RoleFactory& make_role,
                                                                  std::function<void()> on_engine_error) {
  if (absl::Status status = Pin(options.cpus); !status.ok()) return status;
  // Before the seconds that a model takes.
  if (absl::Status status = CheckCanListen(options.host, options.port); !status.ok()) return status;
  std::unique_ptr<WorkerServer> server(new WorkerServer());
  if (absl::Status status = server->OpenEngine(options); !status.ok()) return status;
  if (absl::Status status = server->MakeRole(options, make_role, std::move(on_engine_error)); !status.ok()) {
    return status;
  }
  if (absl::Status status = server->Serve(options); !status.ok()) return status;
  return server;
}

absl::Status WorkerServer::OpenEngine(const WorkerOptions& options) {
  auto file = engine::OpenModel(options.model);
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  kernels::CpuOptions cpu;
  cpu.compute = kernels::CpuComputeFromName(options.compute).value_or(kernels::CpuCompute::kInt8);  // auto
  if (options.kv_dtype != "auto") {
    cpu.kv = options.kv_dtype == "int8" ? kernels::KvDType::kInt8 : kernels::KvDType::kBF16;
  }
  cpu.threads = options.threads > 0 ? options.threads : AllowedCores();
  auto backend = kernels::NewCpuBackend(cpu);
  if (!backend.ok()) return backend.status();
  backend_ = *std::move(backend);
  auto engine = engine::Engine::Create(*file_, *backend_, ToEngineOptions(options));
  if (!engine.ok()) return InFlags(engine.status());
  engine_ = *std::move(engine);
  port_ = std::make_unique<LocalEngine>(*engine_);
  info_ = DescribeWorker(options, DrawIncarnation(), *file_, *backend_, *engine_);
  LOG(INFO) << "model \"" << info_.model() << "\", " << backend_->numerics_id() << ", " << cpu.threads << " threads, " << info_.blocks_total()
            << " blocks of " << options.block_size << " tokens, context " << info_.context_length();
  return absl::OkStatus();
}

absl::Status WorkerServer::MakeRole(const WorkerOptions& options, const RoleFactory& make_role,
                                    std::function<void()> on_engine_error) {
  EngineLoopOptions loop;
  loop.on_engine_error = [this, notify = std::move(on_engine_error)](const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      engine_error_ = status;
    }
    notify();
  };
  loop_ = std::make_unique<EngineLoop>(loop, board_);
  requests_ = std::make_unique<RequestTable>(absl::Milliseconds(options.lease_ms));
  auto role = make_role({.options = options,
                         .info = info_,
                         .kv = HostKvOf(*engine_),
                         .engine = *port_,
                         .requests = *requests_,
                         .loop = *loop_,
                         .board = board_,
                         .report_soon = [this] { ReportSoon(); }});
  if (!role.ok()) return role.status();
  role_ = *std::move(role);
  core_ = std::make_unique<WorkerCore>(CoreOptions{info_.incarnation(), file_->config().vocab}, *port_, *requests_,
                                       role_->role());
  return absl::OkStatus();
}

absl::Status WorkerServer::Serve(const WorkerOptions& options) {
  service_ = std::make_unique<WorkService>(*loop_);
  std::vector<grpc::Service*> services = role_->services();
  services.push_back(service_.get());
  auto listening = Listen(options.host, options.port, services);
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
  registration.on_drain = [this] { loop_->Drain(); };
  registration.on_peers = [this](std::map<uint64_t, std::string> peers) { role_->SetPeers(std::move(peers)); };
  registration_ = std::make_unique<Registration>(std::move(registration), board_);
  registration_->Start();
  progress_ = std::make_unique<ProgressWatch>(
      absl::Milliseconds(options.stuck_after_ms), [this] { return loop_->TurnAge(); },
      [this](bool stuck) { OnStuck(stuck); });
  progress_->Start();
  absl::MutexLock lock(&reporting_mutex_);
  reporting_ = true;
  return absl::OkStatus();
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
  registration_->BeginLeave(kLeaveTimeout);
  listening_.server->GetHealthCheckService()->SetServingStatus(false);
  const bool stopped = loop_->Stop(MakeError(v1::DRAINING_WORKER, "the worker is shutting down"), kStepTimeout);
  listening_.server->Shutdown(std::chrono::system_clock::now() + kStreamTimeout);
  registration_->Stop(absl::ZeroDuration());
  return stopped;
}

WorkerServer::~WorkerServer() {
  Stop();
}

absl::Status WorkerServer::engine_error() const {
  absl::MutexLock lock(&mutex_);
  return engine_error_;
}

}  // namespace sluice::worker
