// A context's part in gathering columns from the ranks of its instance (kernels/collective.h): the first error is kept
// for the step's end, and nothing is exchanged after it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_storage.h"

namespace sluice::kernels::cpu {

class Gathering {
 public:
  // Null: an instance of one rank.
  explicit Gathering(Collective* collective) : collective_(collective) {}

  void Rows(const CpuActivation& rows, int64_t count, std::span<const int64_t> borders);
  void Logits(const GatherLogitsParams& p, int64_t count);

  absl::Status Finish() const { return status_; }

 private:
  void Gather(float* rows, int64_t ld, int64_t count, std::span<const int64_t> borders, Collective::To to);

  Collective* const collective_;
  absl::Status status_;
};

}  // namespace sluice::kernels::cpu
