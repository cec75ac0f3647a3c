#include "worker/options.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "config/config_file.h"
#include "kvtransfer/fault_channel.h"
#include "worker/version.h"

namespace sluice::worker {
namespace {

constexpr int kMostCpus = 4096;
constexpr int64_t kMostKvBytes = int64_t{1} << 44;
constexpr char kEverything[] =
    "\nExamples:\n"
    "  PROGRAM --model model.gguf --router localhost:50051\n"
    "  PROGRAM --model model.gguf --router localhost:50051 --threads 4 --cpus 0-3 --kv-bytes 2G\n"
    "  PROGRAM --model model.gguf --registry etcd://localhost:2379      (finds all routers with the same flag)\n"
    "\nOnce it serves it prints one line to stdout (\"PROGRAM ready: ...\"); logs go to stderr.\n"
    "SIGTERM or Ctrl-C ends it cleanly: it leaves its routers, and what runs fails over to another worker.\n";

// "HOST:PORT", with brackets around an IPv6 host.
std::string CheckAddress(const std::string& address) {
  return discovery::IsHostAndPort(address) ? "" : absl::StrCat("\"", address, "\" is not HOST:PORT");
}

std::string CheckRegistry(const std::string& text) {
  const auto registry = discovery::ParseRegistry(text);
  return registry.ok() ? "" : std::string(registry.status().message());
}

std::string CheckCpuList(const std::string& text) {
  const auto cpus = ParseCpuList(text);
  return cpus.ok() ? "" : std::string(cpus.status().message());
}

std::string CheckFaultPlan(const std::string& text) {
  const auto plan = kvtransfer::ParseFaultPlan(text);
  return plan.ok() ? "" : std::string(plan.status().message());
}

void AddOptions(CLI::App& app, const RoleDescription& role, WorkerOptions& o, std::string& role_name,
                std::string& cpus) {
  app.add_option("--model", o.model, "Model file (GGUF)")->required()->type_name("PATH");
  app.add_option("--router", o.routers, "Router to announce to; repeat for several. Without one nobody sends work")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(CheckAddress, "", "address"));
  app.add_option("--role", role_name, "What this worker does")->check(CLI::IsMember(role.roles))->type_name("ROLE");
  app.add_option("--host", o.host, "Address to listen on")->type_name("HOST");
  app.add_option("--advertise", o.advertise, "Host that routers dial; default: the address it listens on")
      ->type_name("HOST");
  app.add_option("--port", o.port, "Port to listen on; 0: a free one, which is announced")
      ->check(CLI::Range(0, 65535))
      ->type_name("N");
  app.add_option("--backend", o.backend, "What computes: cpu, cuda, or auto (a GPU where there is one)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->type_name("BACKEND");
  app.add_option("--device", o.device, "Which GPU, as CUDA counts them; with --tp the first of N")
      ->check(CLI::Range(0, 1023))
      ->type_name("N");
  app.add_option("--nccl-library", o.nccl_library,
                 "NCCL, for what goes between GPUs; default: libnccl.so.2, where the system finds it")
      ->type_name("FILE");
  app.add_option(
         "--gemm", o.gemm,
         "What multiplies on a GPU: own (the same bits in every batch), cublaslt (faster prompts, but an answer's last "
         "digits then depend on what is computed beside it), or auto (cublaslt where it can be loaded)")
      ->check(CLI::IsMember({"own", "cublaslt", "auto"}))
      ->type_name("WHAT");
  app.add_option("--weights", o.weights,
                 "How a GPU keeps matrices: bf16, or int8 (half the memory and traffic, a little less exact)")
      ->check(CLI::IsMember({"bf16", "int8"}))
      ->type_name("TYPE");
  app.add_option("--gemm-rows", o.gemm_rows,
                 "With cuBLASLt: fewer rows than this in a step are multiplied by our own kernels")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--cublaslt-library", o.cublaslt_library,
                 "cuBLASLt, for --gemm; default: libcublasLt.so.13, where the system finds it")
      ->type_name("FILE");
  app.add_option(
         "--rank-timeout-ms", o.rank_timeout_ms,
         "With --tp on GPUs: how long ranks wait for each other, at the start and in a step, before one of them "
         "counts as lost and the worker ends")
      ->check(CLI::Range(100, 3600000));
  app.add_option(
         "--gpu-memory", o.gpu_memory,
         "Share of the GPU's memory that is free after the weights for the KV cache, where neither --kv-bytes nor "
         "--kv-blocks is given")
      ->check(CLI::Range(0.01, 1.0))
      ->type_name("SHARE");
  app.add_flag("--cuda-graphs,!--no-cuda-graphs", o.cuda_graphs,
               "Record the launches of decode steps on a GPU once and replay them (the default), or launch each anew")
      ->default_str(o.cuda_graphs ? "true" : "false");
  app.add_flag(
         "--device-sampling,!--no-device-sampling", o.device_sampling,
         "Sample on a GPU, which then brings tokens instead of logits (the default), or on the CPU: the answers are "
         "the same")
      ->default_str(o.device_sampling ? "true" : "false");
  app.add_flag(
         "--plan-ahead,!--no-plan-ahead", o.plan_ahead,
         "With a GPU, plan the next step while one runs (the default), so that it never waits for the CPU, or only "
         "when that has ended, so that a new prompt gets into it sooner: the answers are the same")
      ->default_str(o.plan_ahead ? "true" : "false");
  app.add_option("--cuda-plugin", o.cuda_plugin, "The CUDA backend; default: backend_cuda.so beside this program")
      ->type_name("FILE");
  app.add_option("--compute", o.compute,
                 "Arithmetic: int8, native (the file's four bits: least memory traffic at few requests), bf16 "
                 "(weights), f32 (the "
                 "reference) or auto (the fastest in the quality gate: int8)")
      ->check(CLI::IsMember({"auto", "int8", "native", "bf16", "f32"}))
      ->type_name("MODE");
  app.add_option(
         "--kv-dtype", o.kv_dtype,
         "How K and V are kept: bf16, int8 (half the memory and traffic, a little less exact) or auto (bf16; f32 "
         "where the arithmetic is)")
      ->check(CLI::IsMember({"auto", "bf16", "int8"}))
      ->type_name("TYPE");
  app.add_option("--threads", o.threads, "Compute threads; 0: one for every core the process may use")
      ->check(CLI::Range(0, kMostCpus));
  app.add_option("--tp", o.tp,
                 "Processes that compute this worker's model together, each its part of every layer; with --backend "
                 "cuda each on a GPU of its own")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  app.add_option("--tp-rank", o.tp_rank, "")->check(CLI::Range(1, 63))->group("");  // of processes that rank 0 starts
  app.add_option("--tp-memory", o.tp_memory, "")->check(CLI::Range(3, 1 << 20))->group("");
  app.add_option("--tp-leader", o.tp_leader, "")->group("");
  app.add_option("--cpus", cpus, "Cores to stay on, such as 0-3,8; default: no pinning")
      ->type_name("LIST")
      ->check(CLI::Validator(CheckCpuList, "", "cpus"));
  CLI::Option* bytes =
      app.add_option("--kv-bytes", o.kv_bytes,
                     "Memory for the KV cache, such as 512M or 2G; default 1G, on a GPU see --gpu-memory")
          ->transform(CLI::AsSizeValue(false))
          ->type_name("BYTES");
  app.add_option("--kv-blocks", o.kv_blocks, "KV cache in blocks, instead of --kv-bytes")
      ->check(CLI::Range(1, 1 << 30))
      ->excludes(bytes);
  app.add_option("--block-size", o.block_size, "Tokens in a KV block")->check(CLI::Range(1, 1024));
  app.add_option("--max-step-tokens", o.max_step_tokens, "Most tokens computed in one step")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-seqs", o.max_seqs, "Most sequences in one step")->check(CLI::Range(1, 1 << 16));
  app.add_option("--max-context", o.max_context, "Most tokens of prompt and answer; 0: what the model was trained for")
      ->check(CLI::Range(0, 1 << 30));
  app.add_flag("--prefix-cache,!--no-prefix-cache", o.prefix_cache,
               "Keep the KV of finished requests for prompts that begin alike (the default), or don't")
      ->default_str(o.prefix_cache ? "true" : "false");
  app.add_flag(
         "--profile,!--no-profile", o.profile,
         "Measure at the start, for a tenth of a second, how fast this worker is, so that routers know it from the "
         "first request on (the default), or let them learn it")
      ->default_str(o.profile ? "true" : "false");
  CLI::Option* packed =
      app.add_option("--packed-cache", o.packed_cache,
                     "Folder where weights stay as they were packed, for the next start and for the other workers of "
                     "this host, which share them in memory; default: $SLUICE_CACHE/packed or ~/.cache/sluice/packed")
          ->type_name("FOLDER");
  app.add_flag_callback(
         "--no-packed-cache", [&o] { o.packed_cache.clear(); }, "Pack at every start, into own memory")
      ->excludes(packed);
  app.add_option(
         "--drafts", o.drafts,
         "Most tokens of an answer that are guessed ahead from its own text and checked in one step; 0: none. It "
         "never changes an answer, and pauses where it does not pay")
      ->check(CLI::Range(0, 64));
  app.add_option("--lease-ms", o.lease_ms, "How long a request outlives a silent router")
      ->check(CLI::Range(100, 3600000));
  app.add_option(
         "--step-target-ms", o.step_target_ms,
         "How long a step may take in which answers wait for their next token: prompts beside them are computed in "
         "pieces that fit; 0: they are not cut")
      ->check(CLI::Range(0, 3600000));
  app.add_option("--stuck-after-ms", o.stuck_after_ms,
                 "How long one step may take before the worker counts as stuck: it then gets no new work")
      ->check(CLI::Range(100, 3600000));
  app.add_option("--kv-channel", o.kv_channel,
                 "How KV moves between workers: shm (within a host), tcp, cuda-ipc (between GPUs within a host), nccl "
                 "(between GPUs), or auto (the first of cuda-ipc, nccl, shm and tcp that both have)")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "cuda-ipc", "nccl"}))
      ->type_name("CHANNEL");
  app.add_option(
         "--cluster-key", o.cluster_key,
         "File with a secret that the router and all workers share (openssl rand -hex 32): who does not have it "
         "is refused. Without one everybody who reaches the ports belongs")
      ->type_name("FILE");
  app.add_option("--tls", o.tls,
                 "Folder with ca.pem, cert.pem and key.pem: connections between routers and workers show each other "
                 "certificates of that authority, made out to sluice.cluster")
      ->type_name("FOLDER");
  if (role.takes_faults) {
    app.add_option(
           "--fault", o.fault,
           "Faults of the KV transfer, for drills: corrupt=N, lose=N, stall=N, fail=N, delay=N, duplicate=N, by "
           "number of the piece, "
           "with commas between them")
        ->type_name("PLAN")
        ->check(CLI::Validator(CheckFaultPlan, "", "fault"));
  }
  app.add_option("--log-level", o.log_level, "Least severity that is logged")
      ->check(CLI::IsMember({"info", "warning", "error"}))
      ->type_name("LEVEL");
  app.add_option_function<std::string>(
         "--registry", [&o](const std::string& text) { o.registry = *discovery::ParseRegistry(text); },
         "Where routers are found, beside those of --router: embedded (nowhere, the default) or etcd: every router "
         "with "
         "the same flag, now and later. An etcd that is away disturbs nobody who has found the others already")
      ->check(CLI::Validator(CheckRegistry, "", "registry"))
      ->type_name("etcd://HOST:PORT[,HOST:PORT...][/PREFIX]");
}

// Beside the model that deploy/setup fetches.
std::string DefaultPackedCache() {
  const auto env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = env("SLUICE_CACHE"); !cache.empty()) return cache + "/packed";
  if (const std::string cache = env("XDG_CACHE_HOME"); !cache.empty()) return cache + "/sluice/packed";
  if (const std::string home = env("HOME"); !home.empty()) return home + "/.cache/sluice/packed";
  return "";
}

absl::Status CheckTogether(const WorkerOptions& o) {
  if (o.kv_bytes < 1 || o.kv_bytes > kMostKvBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--kv-bytes: ", o.kv_bytes, " is outside [1, ", kMostKvBytes, "]"));
  }
  if (o.backend == "cuda" && o.compute != "auto" && o.compute != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("--compute: ", o.compute, " is for CPUs; a GPU computes in bf16, so leave it out"));
  }
  if (o.compute == "f32" && o.kv_dtype != "auto") {
    return absl::InvalidArgumentError(absl::StrCat("--kv-dtype: ", o.kv_dtype,
                                                   " does not go with --compute f32, "
                                                   "which keeps K and V in f32; leave one of them out"));
  }
  if (o.backend == "cpu" && o.weights != "bf16") {
    return absl::InvalidArgumentError("--weights is for GPUs; on a CPU --compute says how weights are kept");
  }
  if (o.weights == "int8" && o.gemm == "cublaslt") {
    return absl::InvalidArgumentError("--gemm: cublaslt does not multiply what --weights int8 keeps; leave one out");
  }
  if (o.tp_rank >= o.tp || (o.tp_rank > 0) != (o.tp_memory >= 0)) {
    return absl::InvalidArgumentError("--tp-rank and --tp-memory are set by the worker itself; use --tp alone");
  }
  if (o.max_seqs > o.max_step_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("--max-seqs: ", o.max_seqs, " is more than --max-step-tokens (",
                                                   o.max_step_tokens, "); a step has a token of each sequence"));
  }
  return absl::OkStatus();
}

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

absl::StatusOr<ParsedOptions> ParseOptions(const RoleDescription& role, int argc, const char* const* argv) {
  ParsedOptions parsed;
  WorkerOptions options;
  options.max_step_tokens = role.max_step_tokens;
  options.packed_cache = DefaultPackedCache();
  std::string role_name = role.roles.front(), cpus;
  CLI::App app(role.summary, role.program);
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", absl::StrCat(role.program, " ", kVersion));
  AddOptions(app, role, options, role_name, cpus);
  std::string footer = kEverything;
  for (size_t at; (at = footer.find("PROGRAM")) != std::string::npos;) footer.replace(at, 7, role.program);
  app.footer(footer);
  config::AddConfigOptions(app, {"common", "workers", role.section});
  if (const std::optional<std::string> text = config::TextBefore(app, argc, argv)) {
    parsed.text = *text;
    return parsed;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = absl::StrCat(version.what(), "\n");
    return parsed;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(OneLine(error.what()));
  }
  if (const std::optional<std::string> text = config::TextInstead(app)) {
    parsed.text = *text;
    return parsed;
  }
  static const auto& kRoles = *new std::map<std::string, v1::Role>{
      {"both", v1::ROLE_BOTH}, {"decode", v1::ROLE_DECODE}, {"prefill", v1::ROLE_PREFILL}};
  options.role = kRoles.at(role_name);
  if (!cpus.empty()) options.cpus = *ParseCpuList(cpus);
  options.kv_sized = app.count("--kv-bytes") > 0;
  options.command_line.assign(argv, argv + argc);
  if (absl::Status status = CheckTogether(options); !status.ok()) return status;
  parsed.options = std::move(options);
  return parsed;
}

absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last >= kMostCpus) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a list of cores such as 0-3,8"));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

}  // namespace sluice::worker
