// A rank but 0 of an engine of several: its part of the decoder over the KV pool that all ranks share, or over one of its
// own heads in its device's memory. It follows rank 0's steps (step_broadcast.h).
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "engine/model/decoder.h"
#include "kernels/backend.h"
#include "kernels/collective.h"

namespace sluice::engine {

class Follower {
 public:
  // `options` are those of rank 0; kv_memory is the pool's, if ranks share one. All that is referred to outlives the follower.
  static absl::StatusOr<std::unique_ptr<Follower>> Create(const ModelFile& file, const kernels::Backend& backend,
                                                          const EngineOptions& options, kernels::Collective* collective,
                                                          std::byte* kv_memory);

  // Of this rank's heads where it has a pool of its own.
  kernels::KvPool& kv() { return *kv_; }

  // OK when rank 0 has stopped; UNAVAILABLE when a rank was lost.
  absl::Status Run();

 private:
  Follower(kernels::Collective* collective, std::unique_ptr<Decoder> decoder, std::unique_ptr<kernels::KvPool> kv,
           int max_logits)
      : collective_(collective), decoder_(std::move(decoder)), kv_(std::move(kv)), max_logits_(max_logits) {}

  kernels::Collective* const collective_;
  const std::unique_ptr<Decoder> decoder_;
  const std::unique_ptr<kernels::KvPool> kv_;
  const int max_logits_;
};

}  // namespace sluice::engine
