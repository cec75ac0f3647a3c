// The command line of a worker, shared by the roles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/discovery/registry_address.h"
#include "proto/serving.pb.h"

namespace sluice::worker {

struct WorkerOptions {
  std::string model;                 // path
  std::vector<std::string> routers;  // HOST:PORT
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string host = "127.0.0.1";  // to listen on
  std::string advertise;           // what routers dial; default: host
  int port = 0;                    // 0: a free one
  std::string backend = "auto";    // cpu, cuda, or cuda where there is a GPU
  std::string cuda_plugin;         // file; empty: beside the program
  int device = 0;                  // GPU; of rank 0, the others have those behind it
  std::string nccl_library;        // file or name; empty: libnccl.so.2
  std::string gemm = "own";        // own, cublaslt, or auto: cublaslt where it can be loaded
  std::string weights = "bf16";    // how a GPU keeps matrices: bf16 or int8
  int gemm_rows = 65;              // of products that cuBLASLt gets, at least
  std::string cublaslt_library;    // file or name; empty: libcublasLt.so.13
  int rank_timeout_ms = 30000;     // on GPUs: for ranks to come, and of a step
  bool cuda_graphs = true;
  bool device_sampling = true;
  bool plan_ahead = true;   // on a device: the next step while one runs
  double gpu_memory = 0.9;  // share of a GPU's free memory for KV, unless kv_bytes or kv_blocks say how much
  bool kv_sized = false;    // kv_bytes was given
  std::string compute = "auto";
  std::string kv_dtype = "auto";
  int threads = 0;                        // 0: every core that the process may use
  std::vector<int> cpus;                  // empty: where the system puts us
  int tp = 1;                             // ranks of this instance (rank_group.h)
  int tp_rank = 0;                        // of the process; ranks but 0 are started by rank 0
  int tp_memory = -1;                     // file descriptor of what they share
  int tp_leader = 0;                      // process of rank 0
  std::vector<std::string> command_line;  // of this process, to start other ranks with
  int64_t kv_bytes = int64_t{1} << 30;
  int kv_blocks = 0;  // 0: from kv_bytes
  int block_size = 16;
  // A step is never interrupted, so this bounds how long a cancel or another sequence waits: 128 rows take about 0.4 s
  // of one core in f32 mode, and larger steps gain nothing there.
  int max_step_tokens = 128;
  int max_seqs = 64;
  int max_context = 0;  // 0: the model's
  bool prefix_cache = true;
  bool profile = true;              // measure how fast the engine is before it serves
  std::string packed_cache;         // folder of packed weights; empty: they stay in memory of this worker's own
  int drafts = 8;                   // most per sequence and step, by prompt lookup
  std::string cluster_key;          // file; empty: none
  std::string tls;                  // folder; empty: plain connections
  std::string kv_channel = "auto";  // how KV moves between workers (kv_channels.h)
  int lease_ms = 10000;
  int step_target_ms = 40;     // of steps with decode rows; 0: prompts beside them are not cut
  int stuck_after_ms = 30000;  // one turn of the engine loop
  std::string log_level = "info";
  std::string fault;                    // kvtransfer/fault_channel.h; for drills
  discovery::RegistryAddress registry;  // where routers are found, beside `routers`
};

// What a role's binary offers.
struct RoleDescription {
  std::string program;             // "sluice_decode"
  std::string summary;             // opens --help
  std::vector<std::string> roles;  // values of --role, the default first
  int max_step_tokens = 128;       // default of --max-step-tokens
  bool takes_faults = false;       // offers --fault
  std::string section = "decode";  // of a configuration file, after `common` and `workers`
};

// Either options, or the text to print (for --help and --version, and then exit code 0).
struct ParsedOptions {
  std::optional<WorkerOptions> options;
  std::string text;
};

// INVALID_ARGUMENT with one line that names the flag and the next step.
absl::StatusOr<ParsedOptions> ParseOptions(const RoleDescription& role, int argc, const char* const* argv);

// "0-3,8" -> {0, 1, 2, 3, 8}. INVALID_ARGUMENT if it isn't such a list.
absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text);

}  // namespace sluice::worker
