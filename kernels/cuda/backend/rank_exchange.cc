#include "kernels/cuda/backend/rank_exchange.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cuda/backend/errors.h"

namespace sluice::kernels::cuda {
namespace {

// Few channels: a rank's rows are small, and every channel takes an SM and memory.
constexpr int kMaxCtas = 8;
constexpr absl::Duration kEnd = absl::Seconds(1);

// The id travels as rank 0's columns; the collective only copies them, whatever they are as numbers.
absl::StatusOr<ncclUniqueId> ShareId(Collective& host, const NcclLibrary& nccl) {
  static_assert(sizeof(ncclUniqueId) % sizeof(float) == 0);
  constexpr int64_t kWords = sizeof(ncclUniqueId) / sizeof(float);
  std::array<float, size_t(kWords)> words = {};
  if (host.rank() == 0) {
    const auto id = NewNcclId(nccl);
    if (!id.ok()) return id.status();
    std::memcpy(words.data(), &*id, sizeof(ncclUniqueId));
  }
  std::vector<int64_t> borders(size_t(host.size()) + 1, kWords);
  borders[0] = 0;
  const absl::Status told = host.Gather(words.data(), kWords, 1, borders, Collective::To::kAll);
  if (!told.ok()) return told;
  ncclUniqueId id;
  std::memcpy(&id, words.data(), sizeof(id));
  return id;
}

int64_t WidestRun(std::span<const int64_t> borders, int64_t element) {
  int64_t widest = 0;
  for (size_t rank = 0; rank + 1 < borders.size(); ++rank) widest = std::max(widest, borders[rank + 1] - borders[rank]);
  return (widest * element + 15) / 16 * 16;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankExchange>> RankExchange::Create(Collective* host, cudaStream_t stream,
                                                                   const RankExchangeOptions& options) {
  if (host->size() > kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat(host->size(), " ranks: ", kMostRanks, " is the most"));
  }
  const auto nccl = NcclLibrary::Load(options.library);
  if (!nccl.ok()) return nccl.status();
  std::unique_ptr<RankExchange> made(new RankExchange(stream, options));
  auto runs = NewDeviceMemory(options.buffer_bytes, "what ranks exchange");
  if (!runs.ok()) return runs.status();
  made->runs_ = *std::move(runs);
  const auto id = ShareId(*host, **nccl);
  if (!id.ok()) return id.status();
  auto communicator = Communicator::Create(
      *nccl, {.purpose = "tensor parallelism",
              .id = *id,
              .rank = host->rank(),
              .size = host->size(),
              .timeout = options.timeout,
              .max_ctas = kMaxCtas,
              .peers = [host] {
                return host->lost() ? absl::UnavailableError("a rank of this instance was lost") : absl::OkStatus();
              }});
  if (!communicator.ok()) return communicator.status();
  made->communicator_ = *std::move(communicator);
  made->watchdog_ = std::make_unique<Watchdog>(made->communicator_.get());
  if (absl::Status status = made->WarmUp(); !status.ok()) return status;
  LOG(INFO) << made->communicator_->Named(
      absl::StrCat("NCCL ", NcclVersionText((*nccl)->version), ", ", made->communicator_->device_bytes() >> 20,
                   " MiB of the GPU, and ", options.buffer_bytes >> 20, " MiB for what is exchanged"));
  return made;
}

RankExchange::~RankExchange() {
  if (communicator_ == nullptr) return;
  watchdog_.reset();
  // Lost or not: nobody waits here for long.
  if (const absl::Status ended = communicator_->Finish(kEnd); !ended.ok()) LOG(WARNING) << ended.message();
}

absl::Status RankExchange::WarmUp() {
  const int64_t ranks = communicator_->size();
  const int64_t most = int64_t(options_.buffer_bytes) / ranks / 16 * 16;
  for (const int64_t bytes : {int64_t(16), most}) {  // NCCL takes other ways for little and for much
    ColumnsArgs args{
        .rows = runs_.get(), .runs = runs_.get(), .run_pitch = bytes, .count = 1, .ranks = int(ranks), .rank = rank()};
    for (const Collective::To to : {Collective::To::kAll, Collective::To::kRank0}) {
      if (absl::Status status = Round(args, to); !status.ok()) return status;
    }
  }
  return Await("the first exchange");
}

absl::Status RankExchange::Gather(void* rows, int64_t row_pitch, int count, std::span<const int64_t> borders,
                                  int64_t element, Collective::To to) {
  CHECK_EQ(int(borders.size()), communicator_->size() + 1);
  ColumnsArgs args{.row_pitch = row_pitch,
                   .runs = runs_.get(),
                   .run_pitch = WidestRun(borders, element),
                   .ranks = communicator_->size(),
                   .rank = rank()};
  if (args.run_pitch == 0) return absl::OkStatus();
  for (size_t i = 0; i < borders.size(); ++i) args.borders[i] = borders[i] * element;
  const int most = int(int64_t(options_.buffer_bytes) / (args.run_pitch * args.ranks));
  CHECK_GT(most, 0) << "a row of " << args.run_pitch << " bytes a rank needs a larger buffer";
  for (int first = 0; first < count; first += most) {
    args.rows = static_cast<std::byte*>(rows) + first * row_pitch;
    args.count = std::min(most, count - first);
    if (absl::Status status = Round(args, to); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RankExchange::Round(const ColumnsArgs& args, Collective::To to) {
  const size_t run = size_t(args.count) * size_t(args.run_pitch);  // bytes
  auto* const runs = static_cast<std::byte*>(args.runs);
  const bool to_all = to == Collective::To::kAll, receives = to_all || args.rank == 0;
  if (to_all || args.rank != 0) {
    if (auto status = ToStatus(PackColumns(args, stream_), "packing columns"); !status.ok()) return status;
  }
  const auto all_gather = [&](const NcclLibrary& nccl, ncclComm_t comm) {
    return nccl.all_gather(runs + size_t(args.rank) * run, runs, run, ncclInt8, comm, stream_);
  };
  const auto to_rank0 = [&](const NcclLibrary& nccl, ncclComm_t comm) {
    if (args.rank != 0) return nccl.send(runs + size_t(args.rank) * run, run, ncclInt8, 0, comm, stream_);
    ncclResult_t result = ncclSuccess;
    for (int rank = 1; rank < args.ranks && (result == ncclSuccess || result == ncclInProgress); ++rank) {
      result = nccl.recv(runs + size_t(rank) * run, run, ncclInt8, rank, comm, stream_);
    }
    return result;
  };
  const absl::Status issued = to_all ? communicator_->Issue("an all-gather of columns", all_gather)
                                     : communicator_->Issue("logits to rank 0", to_rank0);
  if (!issued.ok() || !receives) return issued;
  return ToStatus(UnpackColumns(args, stream_), "unpacking columns");
}

absl::Status RankExchange::Await(absl::string_view what) {
  cudaError_t error;
  {
    const Watchdog::Wait wait(watchdog_.get(), what, options_.timeout);
    error = cudaStreamSynchronize(stream_);
  }
  // That a rank is lost says more than what the GPU makes of it.
  if (absl::Status status = communicator_->status(); !status.ok()) return status;
  return ToStatus(error, std::string(what));
}

}  // namespace sluice::kernels::cuda
