#include "engine/parallel/shared_memory_collective.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using To = kernels::Collective::To;

class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~Mapping() { munmap(memory_, bytes_); }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  size_t bytes_;
  void* memory_;
};

// What rank `of` gives in exchange `n` at (row, column).
float Value(int n, int64_t row, int64_t column) {
  return float(n * 31 + row * 7 + column);
}

// One rank's part in `exchanges` of random shapes; false if something was wrong.
bool Take(SharedMemoryCollective& collective, uint32_t seed, int exchanges, bool stumble) {
  std::mt19937 shapes(seed), pauses(seed + uint32_t(collective.rank()) + 1);
  for (int n = 0; n < exchanges; ++n) {
    const int64_t count = 1 + shapes() % 40, width = 1 + shapes() % 70, ld = width + shapes() % 5;
    std::vector<int64_t> borders = {0};
    for (int r = 1; r < collective.size(); ++r) borders.push_back(int64_t(shapes() % uint32_t(width + 1)));
    borders.push_back(width);
    std::sort(borders.begin(), borders.end());
    const To to = shapes() % 3 == 0 ? To::kRank0 : To::kAll;
    std::vector<float> rows(size_t(count * ld), -1.0f);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = borders[size_t(collective.rank())]; c < borders[size_t(collective.rank()) + 1]; ++c) {
        rows[size_t(i * ld + c)] = Value(n, i, c);
      }
    }
    if (stumble && pauses() % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(pauses() % 300));
    if (!collective.Gather(rows.data(), ld, count, borders, to).ok()) return false;
    if (to == To::kRank0 && collective.rank() != 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < ld; ++c) {
        if (rows[size_t(i * ld + c)] != (c < width ? Value(n, i, c) : -1.0f)) return false;
      }
    }
  }
  return true;
}

constexpr size_t kBuffer = 4096;  // so that some exchanges take several rounds

TEST(SharedMemoryCollective, ThreadsGetEachOthersColumns) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    Mapping memory(SharedMemoryCollective::BytesFor(ranks, kBuffer));
    std::vector<std::thread> threads;
    std::vector<char> fine(size_t(ranks), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        SharedMemoryCollective collective(memory.data(), rank, ranks, kBuffer);
        fine[size_t(rank)] = Take(collective, uint32_t(ranks) * 100, 1500, true);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(fine, std::vector<char>(size_t(ranks), 1)) << ranks << " ranks";
  }
}

TEST(SharedMemoryCollective, ProcessesToo) {
  constexpr int kRanks = 3;
  Mapping memory(SharedMemoryCollective::BytesFor(kRanks, kBuffer));
  std::vector<pid_t> children;
  for (int rank = 1; rank < kRanks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      SharedMemoryCollective collective(memory.data(), rank, kRanks, kBuffer);
      _exit(Take(collective, 7, 1000, true) ? 0 : 1);
    }
    children.push_back(pid);
  }
  SharedMemoryCollective collective(memory.data(), 0, kRanks, kBuffer);
  EXPECT_TRUE(Take(collective, 7, 1000, true));
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
}

// Whoever notices that a rank is gone ends the waits of all others.
TEST(SharedMemoryCollective, AnAbortEndsEveryWait) {
  constexpr int kRanks = 3;
  Mapping memory(SharedMemoryCollective::BytesFor(kRanks, kBuffer));
  const pid_t lost = fork();
  if (lost == 0) {
    pause();
    _exit(0);
  }
  std::vector<absl::Status> ended(kRanks - 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    threads.emplace_back([&, rank] {
      SharedMemoryCollective collective(memory.data(), rank, kRanks, kBuffer);
      std::vector<float> row(3);
      const std::vector<int64_t> borders = {0, 1, 2, 3};
      ended[size_t(rank)] = collective.Gather(row.data(), 3, 1, borders, To::kAll);
      EXPECT_EQ(collective.Gather(row.data(), 3, 1, borders, To::kAll).code(), absl::StatusCode::kUnavailable);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that they sleep
  kill(lost, SIGKILL);
  waitpid(lost, nullptr, 0);
  SharedMemoryCollective(memory.data(), 0, kRanks, kBuffer).Abort();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : ended) EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(SharedMemoryCollective, PatienceEndsTheWaitForARankThatStandsStill) {
  const size_t bytes = SharedMemoryCollective::BytesFor(3, 4096);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const auto at = [&](int rank) { return SharedMemoryCollective(static_cast<std::byte*>(memory), rank, 3, 4096); };
  SharedMemoryCollective leader = at(0), patient = at(1);  // rank 2 never comes
  leader.set_patience(std::chrono::milliseconds(200));
  const int64_t borders[] = {0, 1, 2, 3};
  std::thread other([&] {
    float row[3] = {};
    EXPECT_EQ(patient.Gather(row, 3, 1, borders, kernels::Collective::To::kAll).code(), absl::StatusCode::kUnavailable);
  });
  float row[3] = {};
  const absl::Status late = leader.Gather(row, 3, 1, borders, kernels::Collective::To::kAll);
  other.join();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(std::string(late.message()), "rank 2 of this instance stands still: waited 200 ms for it");
  EXPECT_TRUE(leader.lost());
  munmap(memory, bytes);
}

}  // namespace
}  // namespace sluice::engine
