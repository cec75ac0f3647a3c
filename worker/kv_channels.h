// Worker option --kv-channel as what the endpoints take.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtransfer/piece_copy.h"
#include "worker/options.h"

namespace sluice::worker {

// The preferred first. FAILED_PRECONDITION, naming the flag, for a channel that this worker can't have.
absl::StatusOr<std::vector<std::string>> KvChannelsOf(const WorkerOptions& options, const kvtransfer::PoolView& kv);

}  // namespace sluice::worker
