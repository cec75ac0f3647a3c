// What a worker tells the routers about itself.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "kernels/backend.h"
#include "proto/worker.pb.h"
#include "worker/options.h"

namespace sluice::worker {

// Without `work`, which is known once the worker listens. Reads the whole model file for its hash.
v1::WorkerInfo DescribeWorker(const WorkerOptions& options, uint64_t incarnation, const engine::ModelFile& file,
                              const kernels::Backend& backend, const engine::Engine& engine);

}  // namespace sluice::worker
