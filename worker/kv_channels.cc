#include "worker/kv_channels.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace sluice::worker {

absl::StatusOr<std::vector<std::string>> KvChannelsOf(const WorkerOptions& options, const kvtransfer::PoolView& kv) {
  const bool in_gpu = kvtransfer::LinksOf(kv) != nullptr;
  if (options.kv_channel == "auto") {
    if (!in_gpu) return std::vector<std::string>{"shm", "tcp"};
    std::vector<std::string> channels = {"cuda-ipc"};
    if (const absl::Status nccl = kvtransfer::LinksOf(kv)->pipes(); nccl.ok()) {
      channels.push_back("nccl");
    } else {
      LOG(INFO) << "no KV over NCCL: " << nccl.message();
    }
    channels.insert(channels.end(), {"shm", "tcp"});
    return channels;
  }
  const bool between_gpus = options.kv_channel == "cuda-ipc" || options.kv_channel == "nccl";
  if (between_gpus && !in_gpu) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--kv-channel: ", options.kv_channel, " is for KV in one GPU's memory, which this worker does not have"));
  }
  if (options.kv_channel == "nccl") {
    if (const absl::Status nccl = kvtransfer::LinksOf(kv)->pipes(); !nccl.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("--kv-channel: ", nccl.message()));
    }
  }
  return std::vector<std::string>{options.kv_channel};
}

}  // namespace sluice::worker
