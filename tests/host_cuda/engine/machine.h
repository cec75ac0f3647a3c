// The state of the grid that runs on this OS thread: its block, warps and CUDA threads. One block at a time.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/host_cuda/engine/async_copy.h"
#include "tests/host_cuda/engine/barrier.h"
#include "tests/host_cuda/engine/diagnose.h"
#include "tests/host_cuda/engine/fiber.h"
#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/engine/limits.h"
#include "tests/host_cuda/engine/schedule.h"
#include "tests/host_cuda/engine/shared_memory.h"

namespace host_cuda {

// Lanes that meet in one warp operation.
struct Meeting {
  uint32_t mask = 0;   // as they named it
  uint32_t lanes = 0;  // of them, those that take part: exited lanes don't
  uint32_t arrived = 0;
  uint32_t rounds = 0;
  const char* operation = nullptr;
  Loc where;
  void (*finish)(Meeting& meeting) = nullptr;
  void* slot[kWarpSize] = {};  // each lane's input and output, on its own stack
  char order[2] = {};          // what TSan's edges hang on; rounds alternate
};

struct Warp {
  uint32_t index = 0;
  uint32_t alive = 0;  // lanes that exist and have not exited
  uint32_t open = 0;   // which of the meetings somebody waits in: one for each mask
  Meeting meeting[kWarpSize];
};

struct Thread;

// One of the block's 16.
struct Barrier {
  uint32_t expected = 0;            // 0: nobody has come
  uint32_t arrived = 0;             // of them; a warp's missing lanes count
  uint32_t threads = 0, trues = 0;  // that have come, and whose predicate was true
  BarrierOp operation = BarrierOp::kSync;
  bool whole_block = false;
  bool in_order = true;  // those who wait came as the schedule releases them
  bool any_passed = false;
  uint32_t last_turn = 0;
  uint32_t rounds = 0;
  Loc where;
  std::vector<Thread*> waiting;
  std::bitset<kMaxThreadsPerBlock> passed;  // who came and went on; those who wait cannot come twice
  char order[2] = {};

  void Clear();
};

// What a thread waits in; it may have been released, and not have run yet.
enum class Waits : uint8_t { kNo, kWarp, kBarrier };

// What a switch touches lies in its first line.
struct alignas(64) Thread {
  uint32_t linear = 0;     // in the block
  uint32_t waits_for = 0;  // mask, or number of the barrier
  const char* waits_in = nullptr;
  Loc waits_at;
  int result = 0;  // of a barrier's reduction
  Waits waits = Waits::kNo;
  bool exited = false;
  bool fenced = false;
  Fiber fiber;
  Warp* warp = nullptr;
  uint32_t lane = 0;
  uint32_t spins = 0;
  Dim3 index;
  std::vector<void*> unfenced_reads;  // see memory_order.h
  AsyncCopies copies;
};

struct Machine {
  const Kernel* kernel = nullptr;
  const unsigned char* params = nullptr;
  Launch launch;
  Dim3 block;  // index of the one that runs
  uint32_t threads = 0, exited = 0;
  uint32_t lanes = 0;  // threads and those that the last warp lacks
  uint64_t grids = 0;  // run so far
  uint64_t idle_turns = 0;
  std::string error;
  Settings settings;

  Thread* running = nullptr;
  Fiber main;
  char order = 0;  // TSan: the grid's beginning and end
  Schedule schedule;
  Random random;
  SharedMemory shared;
  std::vector<std::unique_ptr<Thread>> pool;
  std::vector<Warp> warps;
  Barrier barriers[kNamedBarriers];
  uint32_t open_barriers = 0;  // bits: somebody has arrived
  std::vector<DeferredArrival> deferred;
  std::vector<Thread*> released;

  Machine() = default;
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The running thread waits; another one runs until somebody releases it.
  void Wait() {
    Thread* const self = running;
    Thread* const next = schedule.Next();
    if (next == nullptr) [[unlikely]]
      FailNobodyReady();
    if (next != self) {
      running = next;
      SwitchFiber(self->fiber, next->fiber);
    }
    self->waits = Waits::kNo;
  }
  // The running thread lets the others run.
  void Yield(Loc where);
  // Ends the grid in its middle; `error` says why.
  [[noreturn]] void Stop();
  [[noreturn, gnu::cold]] void FailNobodyReady();
  std::string Waiters() const;
};

extern constinit thread_local Machine* this_machine;
inline Thread& Self() {
  return *this_machine->running;
}

// The running thread ends, wherever it is; its frames are abandoned.
[[noreturn]] void ExitThread();

// An exit's consequences for those who wait in the warp and in the block.
void LeaveWarp(Thread& thread);
void LeaveBarriers(Thread& thread);

}  // namespace host_cuda
