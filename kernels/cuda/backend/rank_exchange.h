// What the ranks of an instance exchange over NCCL: columns of rows, on the stream that computes them, so that it can
// be recorded with the rest of a step.
//
// Columns are packed into a run of each rank's own, padded to the widest rank's: one all-gather then moves what is cut
// unevenly too, and packing is needed anyhow, as columns lie strided and NCCL moves runs. (A broadcast by every rank
// would need no padding, but has as many steps as there are ranks.) Logits go to rank 0 alone, by sends and receives.
// Bytes are only copied: results have the bits of one rank.
//
// All ranks call it in the same order with the same sizes, and record the same steps. One thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/collective.h"
#include "kernels/cuda/backend/memory.h"
#include "kernels/cuda/nccl/communicator.h"
#include "kernels/cuda/nccl/watchdog.h"
#include "kernels/cuda/rows/columns.h"

namespace sluice::kernels::cuda {

struct RankExchangeOptions {
  std::string library;                         // NcclLibrary::Load
  absl::Duration timeout = absl::Seconds(30);  // for ranks to come, and for a step
  size_t buffer_bytes = 0;                     // of all ranks' runs; what is larger goes in several rounds
};

class RankExchange {
 public:
  // The ranks of `host`, which must outlive this, meet on their threads' current devices: rank 0 sends the
  // communicator's id through it. It also tells who is lost.
  static absl::StatusOr<std::unique_ptr<RankExchange>> Create(Collective* host, cudaStream_t stream,
                                                              const RankExchangeOptions& options);
  // Graphs that have recorded exchanges are gone.
  ~RankExchange();

  int rank() const { return communicator_->rank(); }

  // Device memory [count][row_pitch bytes], of which rank r has filled the bytes from borders[r] * element to
  // borders[r + 1] * element of each row: afterwards whoever is asked for has them all.
  absl::Status Gather(void* rows, int64_t row_pitch, int count, std::span<const int64_t> borders, int64_t element,
                      Collective::To to);

  // Waits for the stream, but no longer than the time-out after which a rank counts as lost. The first failure stays.
  absl::Status Await(absl::string_view what);

 private:
  RankExchange(cudaStream_t stream, const RankExchangeOptions& options) : stream_(stream), options_(options) {}
  absl::Status Round(const ColumnsArgs& args, Collective::To to);
  // Connections, with their buffers, come with the first use.
  absl::Status WarmUp();

  const cudaStream_t stream_;
  const RankExchangeOptions options_;
  DeviceMemory runs_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace sluice::kernels::cuda
