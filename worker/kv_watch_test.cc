#include "worker/kv_watch.h"

#include <vector>

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

// Says what it was told to.
class Scripted final : public kernels::DeviceKv {
 public:
  absl::StatusOr<uint64_t> Gather(const kernels::KvSlice&, std::span<std::byte>) override { return next; }
  absl::StatusOr<uint64_t> Scatter(const kernels::KvSlice&, std::span<const std::byte>) override { return next; }
  absl::StatusOr<uint64_t> GatherOnDevice(const kernels::KvSlice&, std::span<std::byte>) override { return next; }
  absl::StatusOr<uint64_t> ScatterOnDevice(const kernels::KvSlice&, std::span<const std::byte>) override {
    return next;
  }

  absl::StatusOr<uint64_t> next = 7;
};

TEST(KvWatch, TellsOfADeviceThatFailedWhateverItDid) {
  Scripted kv;
  std::vector<absl::Status> told;
  KvWatch watch(kv, [&](const absl::Status& status) { told.push_back(status); });
  const auto all = [&] {
    return std::vector{watch.Gather({}, {}), watch.Scatter({}, {}), watch.GatherOnDevice({}, {}),
                       watch.ScatterOnDevice({}, {})};
  };
  for (const auto& moved : all()) EXPECT_EQ(*moved, 7u);
  for (const auto& passing :
       {absl::ResourceExhaustedError("memory"), absl::InvalidArgumentError("x"), absl::FailedPreconditionError("x")}) {
    kv.next = passing;
    for (const auto& moved : all()) EXPECT_EQ(moved.status(), passing);
  }
  EXPECT_TRUE(told.empty());
  for (const auto& lasting :
       {absl::InternalError("ECC"), absl::DeadlineExceededError("rank 1"), absl::UnavailableError("lost")}) {
    kv.next = lasting;
    told.clear();
    for (const auto& moved : all()) EXPECT_EQ(moved.status(), lasting);
    EXPECT_EQ(told, std::vector<absl::Status>(4, lasting));
  }
}

}  // namespace
}  // namespace sluice::worker
