#include "worker/open_engine.h"

#include <sched.h>
#include <string.h>

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/speculation/prompt_lookup_drafter.h"
#include "glog/logging.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/plugin/cuda_plugin.h"
#include "worker/monotonic_clock.h"

namespace sluice::worker {
namespace {

int AllowedCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenCpu(const WorkerOptions& options) {
  kernels::CpuOptions cpu;
  cpu.compute = kernels::CpuComputeFromName(options.compute).value_or(kernels::CpuCompute::kInt8);  // auto
  if (options.kv_dtype != "auto") {
    cpu.kv = options.kv_dtype == "int8" ? kernels::KvDType::kInt8 : kernels::KvDType::kBF16;
  }
  cpu.threads = ThreadsOf(options);
  return kernels::NewCpuBackend(cpu);
}

kernels::CudaGemm GemmOf(const std::string& name) {
  if (name == "own") return kernels::CudaGemm::kOwn;
  return name == "auto" ? kernels::CudaGemm::kAuto : kernels::CudaGemm::kCublasLt;
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenCuda(const WorkerOptions& options) {
  auto plugin =
      kernels::LoadCudaPlugin(options.cuda_plugin.empty() ? kernels::DefaultCudaPluginPath() : options.cuda_plugin);
  if (!plugin.ok()) return plugin.status();
  return (*plugin)->new_backend(
      {.device = options.device + options.tp_rank,
       .graphs = options.cuda_graphs,
       .kv = options.kv_dtype == "int8" ? kernels::KvDType::kInt8 : kernels::KvDType::kBF16,
       .nccl_library = options.nccl_library,
       .rank_timeout_seconds = 1e-3 * options.rank_timeout_ms,
       .weights = options.weights == "int8" ? kernels::CudaWeights::kInt8 : kernels::CudaWeights::kBf16,
       .gemm = GemmOf(options.gemm),
       .gemm_rows = options.gemm_rows,
       .cublaslt_library = options.cublaslt_library});
}

// What asks for something that only a CPU does gets a CPU. Ranks have to agree without a word, so they are asked for
// GPUs by name.
bool FitsGpu(const WorkerOptions& options) {
  return (options.compute == "auto" || options.compute == "bf16") && options.tp == 1;
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackend(const WorkerOptions& options) {
  if (options.backend == "cuda") return OpenCuda(options);
  if (options.backend == "auto" && kernels::HasCudaDriver() && FitsGpu(options)) {
    auto cuda = OpenCuda(options);
    if (cuda.ok()) return cuda;
    LOG(WARNING) << "computing on the CPU: " << cuda.status().message();
  }
  if (options.backend == "auto" && options.tp > 1 && options.tp_rank == 0 && kernels::HasCudaDriver()) {
    LOG(WARNING) << "computing on the CPU: ranks on GPUs are asked for with --backend cuda";
  }
  return OpenCpu(options);
}

}  // namespace

absl::Status PinTo(const WorkerOptions& options) {
  if (options.cpus.empty()) return absl::OkStatus();
  const int count = int(options.cpus.size());
  std::span<const int> cpus = options.cpus;
  if (options.tp > 1 && count >= options.tp) {
    const int first = count * options.tp_rank / options.tp;
    cpus = cpus.subspan(size_t(first), size_t(count * (options.tp_rank + 1) / options.tp - first));
  }
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

int ThreadsOf(const WorkerOptions& options) {
  if (options.threads > 0) return options.threads;
  // A rank that was pinned has its share already.
  const bool shares = options.tp > 1 && int(options.cpus.size()) < options.tp;
  return std::max(1, shares ? AllowedCores() / options.tp : AllowedCores());
}

absl::StatusOr<ModelAndBackend> OpenModelAndBackend(const WorkerOptions& options) {
  auto file = engine::OpenModel(options.model);
  if (!file.ok()) return file.status();
  auto backend = OpenBackend(options);
  if (!backend.ok()) return backend.status();
  return ModelAndBackend{*std::move(file), *std::move(backend)};
}

engine::EngineOptions ToEngineOptions(const WorkerOptions& options) {
  engine::EngineOptions to;
  to.block_size = options.block_size;
  to.num_blocks = options.kv_blocks;
  to.max_kv_bytes = options.kv_bytes;
  if (!options.kv_sized) to.device_memory_share = options.gpu_memory;
  to.max_context = options.max_context;
  to.scheduler.max_step_tokens = options.max_step_tokens;
  to.scheduler.max_step_seqs = options.max_seqs;
  to.prefix_caching = options.prefix_cache;
  to.packed_folder = options.packed_cache;
  to.device_sampling = options.device_sampling;
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

}  // namespace sluice::worker
