#include "worker/kv_watch.h"

#include <utility>

namespace sluice::worker {

KvWatch::KvWatch(kernels::DeviceKv& kv, std::function<void(const absl::Status&)> failed)
    : kv_(kv), failed_(std::move(failed)) {}

// INTERNAL is what a device says that fails; DEADLINE_EXCEEDED, UNAVAILABLE a rank that does not answer or is lost.
absl::StatusOr<uint64_t> KvWatch::Look(absl::StatusOr<uint64_t> moved) const {
  const absl::Status& status = moved.status();
  if (absl::IsInternal(status) || absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) failed_(status);
  return moved;
}

absl::StatusOr<uint64_t> KvWatch::Gather(const kernels::KvSlice& slice, std::span<std::byte> out) {
  return Look(kv_.Gather(slice, out));
}

absl::StatusOr<uint64_t> KvWatch::Scatter(const kernels::KvSlice& slice, std::span<const std::byte> in) {
  return Look(kv_.Scatter(slice, in));
}

absl::StatusOr<uint64_t> KvWatch::GatherOnDevice(const kernels::KvSlice& slice, std::span<std::byte> out) {
  return Look(kv_.GatherOnDevice(slice, out));
}

absl::StatusOr<uint64_t> KvWatch::ScatterOnDevice(const kernels::KvSlice& slice, std::span<const std::byte> in) {
  return Look(kv_.ScatterOnDevice(slice, in));
}

}  // namespace sluice::worker
