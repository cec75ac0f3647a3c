// From a worker's options to its model, backend and engine options: the same for every rank of an instance.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "kernels/backend.h"
#include "worker/options.h"

namespace sluice::worker {

struct ModelAndBackend {
  std::unique_ptr<engine::ModelFile> file;
  std::unique_ptr<kernels::Backend> backend;
};
absl::StatusOr<ModelAndBackend> OpenModelAndBackend(const WorkerOptions& options);

engine::EngineOptions ToEngineOptions(const WorkerOptions& options);

// Compute threads of each rank.
int ThreadsOf(const WorkerOptions& options);

// Confines this process to --cpus; a rank to its share of them where each gets one at least.
absl::Status PinTo(const WorkerOptions& options);

}  // namespace sluice::worker
