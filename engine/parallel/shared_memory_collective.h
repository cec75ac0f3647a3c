// kernels/collective.h between processes of one host, over one mapping that all ranks share.
//
// Each rank has two buffers, used in turns, and a counter. To exchange, it writes its columns into the buffer, raises
// its counter, waits for the counters of all others and reads their buffers. A buffer is written again two exchanges
// later: by then every rank has raised its counter once more, which it does after it has read. So one wait an exchange
// is enough.
//
// Waiting spins for about as long as a phase takes, then sleeps on a futex. A lost rank does not raise its counter;
// whoever notices calls Abort (from any process of the instance), which ends every wait at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collective.h"

namespace sluice::engine {

class SharedMemoryCollective final : public kernels::Collective {
 public:
  // Bytes that the mapping of `ranks` ranks must have; larger exchanges go in several rounds of that size.
  static size_t BytesFor(int ranks, size_t buffer_bytes);

  // `memory` is shared by all ranks, aligned to pages, zero at first, and outlives this.
  SharedMemoryCollective(std::byte* memory, int rank, int ranks, size_t buffer_bytes);

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  bool lost() const override { return aborted(); }
  absl::Status Gather(float* rows, int64_t ld, int64_t count, std::span<const int64_t> borders, To to) override;

  // From now on this rank waits no longer than that for another one, then aborts: DEADLINE_EXCEEDED, naming it. For one
  // that has nothing else to notice a rank that stands still by, and whose exchanges are never far apart.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }

  // Every rank's current and later calls fail. Safe from any thread or process.
  void Abort();

 private:
  struct alignas(64) Counter {
    std::atomic<uint32_t> done;      // exchanges, mod 2^32
    std::atomic<uint32_t> sleepers;  // who may wait on it
  };
  struct alignas(64) Header {
    std::atomic<uint32_t> aborted;
  };

  Counter& counter(int rank) const { return reinterpret_cast<Counter*>(memory_ + sizeof(Header))[rank]; }
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  float* buffer(int rank, uint64_t exchange) const;

  absl::Status Exchange(float* rows, int64_t ld, int64_t count, std::span<const int64_t> borders, To to);
  bool aborted() const { return header().aborted.load(std::memory_order_acquire) != 0; }
  absl::Status Await(int rank, uint32_t exchange);
  bool Sleep(int rank, uint32_t exchange) const;  // false: aborted, or out of patience
  void Raise();

  std::byte* const memory_;
  const int rank_, ranks_;
  const size_t buffer_bytes_;
  uint64_t exchanges_ = 0;
  std::chrono::milliseconds patience_ = std::chrono::hours(24 * 365);
};

}  // namespace sluice::engine
