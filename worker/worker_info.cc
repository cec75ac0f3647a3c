#include "worker/worker_info.h"

#include <unistd.h>

#include <filesystem>
#include <vector>

#include "engine/layer_groups.h"
#include "kvtransfer/fingerprint.h"
#include "worker/host_id.h"
#include "worker/version.h"

namespace sluice::worker {
namespace {

v1::Fingerprint FingerprintOf(const engine::ModelFile& file, const kernels::Backend& backend,
                              const engine::Engine& engine) {
  const kernels::KvLayout& layout = engine.kv_layout();
  v1::Fingerprint fingerprint;
  fingerprint.set_model_hash(file.ContentHash());
  fingerprint.set_numerics(std::string(backend.numerics_id()));
  fingerprint.set_kv_dtype(std::string(kernels::Name(layout.dtype)));
  fingerprint.set_block_size(layout.block_size);
  fingerprint.set_layout_version(kernels::kKvLayoutVersion);
  fingerprint.set_protocol_version(kvtransfer::kTransferProtocolVersion);
  v1::LayerGroup* group = fingerprint.add_layer_groups();
  group->set_kind(v1::LayerGroup::FULL);
  const std::vector<engine::LayerGroup> groups = engine::LayerGroupsOf(file.config(), engine.context_length());
  for (const int layer : groups.front().layers) group->add_layers(layer);
  group->set_kv_heads(layout.num_kv_heads);
  group->set_head_dim(layout.head_dim);
  group->set_block_bytes(static_cast<int64_t>(layout.block_bytes()));
  return fingerprint;
}

}  // namespace

v1::WorkerInfo DescribeWorker(const WorkerOptions& options, uint64_t incarnation, const engine::ModelFile& file,
                              const kernels::Backend& backend, const engine::Engine& engine) {
  v1::WorkerInfo info;
  info.set_role(options.role);
  info.set_incarnation(incarnation);
  const std::string& name = file.config().name;
  info.set_model(name.empty() ? std::filesystem::path(options.model).stem().string() : name);
  *info.mutable_fingerprint() = FingerprintOf(file, backend, engine);
  info.set_pid(getpid());
  v1::RankInfo* rank = info.add_ranks();
  rank->set_device(-1);
  info.set_blocks_total(engine.stats().blocks_total);
  info.set_max_running(options.max_seqs);
  info.set_max_step_tokens(options.max_step_tokens);
  info.set_context_length(engine.context_length());
  info.set_host_id(HostId());
  info.set_version(kVersion);
  return info;
}

}  // namespace sluice::worker
