// A decoder-only transformer built from a ModelConfig: which phases of the backend run in which order on which weights.
//
// A new architecture changes the config or adds a layer kind here; kernels stay untouched.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/files/model_file.h"
#include "kernels/backend.h"

namespace sluice::engine {

struct DecoderLimits {
  int max_step_tokens = 512;
  int max_step_seqs = 64;
  int max_step_logits = 64;
  int max_context = 0;  // positions that the RoPE table covers
  int block_size = 16;
};

// The part that one rank of an instance computes; see parallel/tensor_split.h.
struct DecoderRank {
  int rank = 0;
  int ranks = 1;
  kernels::Collective* collective = nullptr;  // outlives the decoder; null for one rank
};

class Decoder {
 public:
  // Packs all weights of its part, kept in `packed_folder` if one is named (weights.h). `file` and `backend` must
  // outlive the decoder (weights may be read in place).
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelFile& file, const kernels::Backend& backend,
                                                         const DecoderLimits& limits,
                                                         const std::string& packed_folder = "",
                                                         const DecoderRank& rank = {});
  ~Decoder();

  // The layout of the KV pool that Forward expects: of all ranks, which share one pool, or each use their heads of one;
  // of this rank's heads alone where the backend has memory of its own.
  kernels::KvLayout kv_layout(int block_size) const;
  int vocab() const;
  kernels::SampleLimits sample_limits() const;  // as of kernels::Context
  int64_t bytes_to_host() const;

  // One step, of all ranks at once with the same batch. Logits are complete on rank 0 only. logits is
  // [batch.logit_rows.size()][vocab], host memory; maxima as in kernels::HeadParams; rows that batch.sampling does not
  // leave to the host are sampled instead. after_layer: called with the number of layers whose KV is final, that of
  // other ranks included (they exchange columns after it is written). Such a step is not recorded; `record` says the
  // same to the other ranks, since either all record a step or none.
  absl::Status Forward(const kernels::StepBatch& batch, kernels::KvPool& kv, float* logits, float* maxima = nullptr,
                       const std::function<void(int layers)>& after_layer = nullptr, bool record = true);

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
