#include "engine/parallel/shared_memory_collective.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace sluice::engine {
namespace {

constexpr int kSpins = 2000;  // about 60 µs

// The word may change between processes, so the futex is not a private one.
void SleepWhile(const std::atomic<uint32_t>& word, uint32_t value) {
  const timespec most = {.tv_sec = 0, .tv_nsec = 100'000'000};  // an abort wakes; this only bounds a lost wake
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &most, nullptr, 0);
}
void WakeAll(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Whether a counter is at `wanted` or past it; the numbers wrap.
bool Reached(uint32_t done, uint32_t wanted) {
  return int32_t(done - wanted) >= 0;
}

}  // namespace

size_t SharedMemoryCollective::BytesFor(int ranks, size_t buffer_bytes) {
  return sizeof(Header) + size_t(ranks) * (sizeof(Counter) + 2 * buffer_bytes);
}

SharedMemoryCollective::SharedMemoryCollective(std::byte* memory, int rank, int ranks, size_t buffer_bytes)
    : memory_(memory), rank_(rank), ranks_(ranks), buffer_bytes_(buffer_bytes) {
  CHECK(rank >= 0 && rank < ranks);
  CHECK_EQ(buffer_bytes % 64, 0u);
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
}

float* SharedMemoryCollective::buffer(int rank, uint64_t exchange) const {
  std::byte* buffers = memory_ + sizeof(Header) + size_t(ranks_) * sizeof(Counter);
  return reinterpret_cast<float*>(buffers + (size_t(rank) * 2 + exchange % 2) * buffer_bytes_);
}

void SharedMemoryCollective::Abort() {
  header().aborted.store(1, std::memory_order_release);
  for (int rank = 0; rank < ranks_; ++rank) WakeAll(counter(rank).done);
}

absl::Status SharedMemoryCollective::Await(int rank, uint32_t exchange) {
  const Counter& other = counter(rank);
  for (int i = 0; i < kSpins; ++i) {
    if (Reached(other.done.load(std::memory_order_acquire), exchange)) return absl::OkStatus();
    if (i % 64 == 63 && aborted()) break;
    _mm_pause();
  }
  if (Sleep(rank, exchange)) return absl::OkStatus();
  if (aborted()) return absl::UnavailableError("a rank of this instance was lost");
  Abort();
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", rank, " of this instance stands still: waited ", patience_.count(), " ms for it"));
}

bool SharedMemoryCollective::Sleep(int rank, uint32_t exchange) const {
  Counter& other = counter(rank);
  const auto begun = std::chrono::steady_clock::now();
  const auto given_up = [&] { return aborted() || std::chrono::steady_clock::now() - begun > patience_; };
  other.sleepers.fetch_add(1);
  uint32_t done = other.done.load();
  bool lost = given_up();
  while (!Reached(done, exchange) && !lost) {
    SleepWhile(other.done, done);
    done = other.done.load();
    lost = given_up();
  }
  other.sleepers.fetch_sub(1);
  return Reached(done, exchange);
}

void SharedMemoryCollective::Raise() {
  Counter& mine = counter(rank_);
  mine.done.fetch_add(1);  // in one order with sleepers: who counts itself after this reads the new value
  if (mine.sleepers.load() != 0) WakeAll(mine.done);
}

absl::Status SharedMemoryCollective::Gather(float* rows, int64_t ld, int64_t count, std::span<const int64_t> borders,
                                            To to) {
  CHECK_EQ(int(borders.size()), ranks_ + 1);
  int64_t widest = 1;
  for (int rank = 0; rank < ranks_; ++rank) {
    widest = std::max(widest, borders[size_t(rank) + 1] - borders[size_t(rank)]);
  }
  const int64_t most = int64_t(buffer_bytes_ / sizeof(float)) / widest;
  CHECK_GT(most, 0) << "a row of " << widest << " columns needs larger buffers";
  for (int64_t first = 0; first < count; first += most) {
    const absl::Status done = Exchange(rows + first * ld, ld, std::min(most, count - first), borders, to);
    if (!done.ok()) return done;
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryCollective::Exchange(float* rows, int64_t ld, int64_t count, std::span<const int64_t> borders,
                                              To to) {
  const auto column = [&](int rank) { return borders[size_t(rank)]; };
  const auto width = [&](int rank) { return borders[size_t(rank) + 1] - borders[size_t(rank)]; };
  const bool given = to == To::kAll || rank_ != 0;  // somebody reads this rank's
  if (given && width(rank_) > 0) {
    float* out = buffer(rank_, exchanges_);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * width(rank_), rows + i * ld + column(rank_), size_t(width(rank_)) * sizeof(float));
    }
  }
  Raise();
  ++exchanges_;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    if (absl::Status came = Await(rank, uint32_t(exchanges_)); !came.ok()) return came;
  }
  if (aborted()) return absl::UnavailableError("a rank of this instance was lost");
  if (to == To::kRank0 && rank_ != 0) return absl::OkStatus();
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_ || width(rank) == 0) continue;
    const float* in = buffer(rank, exchanges_ - 1);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(rows + i * ld + column(rank), in + i * width(rank), size_t(width(rank)) * sizeof(float));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
