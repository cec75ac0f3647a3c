#include "tests/host_cuda/engine/grid.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

uint64_t Count(const Dim3& d) {
  return uint64_t{d.x} * d.y * d.z;
}

// The running thread has ended; who runs next, if anybody.
Thread* Exit(Machine& machine) {
  EngineScope scope;
  Thread& self = *machine.running;
  Publish(&machine.order);
  self.exited = true;
  ++machine.exited;
  LeaveWarp(self);
  LeaveBarriers(self);
  Thread* const next = machine.schedule.Next();
  if (next != nullptr || machine.exited == machine.threads) return next;
  uint32_t waiter = 0;
  while (machine.pool[waiter]->exited) ++waiter;
  Fail(machine.pool[waiter]->waits_at, "deadlock: threads wait for others that have exited");
}

// What a CUDA thread's fiber runs.
void ThreadMain() {
  EnterFiber();
  Machine& machine = *this_machine;
  Thread& self = *machine.running;
  Observe(&machine.order);
  machine.kernel->body(machine.params);
  Thread* const next = Exit(machine);
  machine.running = next;
  LeaveFiber(self.fiber, next == nullptr ? machine.main : next->fiber);
}

void PrepareThreads(Machine& machine) {
  while (machine.pool.size() < machine.threads) {
    machine.pool.push_back(std::make_unique<Thread>());
    CreateFiber(machine.pool.back()->fiber);
  }
  const uint32_t warps = (machine.threads + kWarpSize - 1) / kWarpSize;
  machine.lanes = warps * kWarpSize;
  if (machine.warps.size() < warps) machine.warps.resize(warps);
  const Dim3& block = machine.launch.block;
  for (uint32_t i = 0; i < machine.threads; ++i) {
    Thread& thread = *machine.pool[i];
    thread.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    thread.linear = i;
    thread.lane = i % kWarpSize;
    thread.warp = &machine.warps[i / kWarpSize];
  }
}

void StartBlock(Machine& machine, uint64_t number) {
  const Dim3& grid = machine.launch.grid;
  machine.block = {static_cast<uint32_t>(number % grid.x), static_cast<uint32_t>(number / grid.x % grid.y),
                   static_cast<uint32_t>(number / (uint64_t{grid.x} * grid.y))};
  machine.exited = 0;
  machine.idle_turns = 0;
  machine.open_barriers = 0;
  machine.shared.Fresh();
  for (Barrier& barrier : machine.barriers) barrier.Clear();
  for (uint32_t first = 0; first < machine.threads; first += kWarpSize) {
    Warp& warp = machine.warps[first / kWarpSize];
    const uint32_t lanes = std::min(kWarpSize, machine.threads - first);
    warp.index = first / kWarpSize;
    warp.alive = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warp.open = 0;
  }
  machine.released.clear();
  machine.deferred.clear();
  for (uint32_t i = 0; i < machine.threads; ++i) {
    Thread& thread = *machine.pool[i];
    thread.exited = thread.fenced = false;
    thread.waits = Waits::kNo;
    thread.spins = 0;
    thread.unfenced_reads.clear();
    if (!thread.copies.Empty()) thread.copies.Clear();
    ArmFiber(thread.fiber, ThreadMain);
    machine.released.push_back(&thread);
  }
  machine.schedule.Start(machine.settings.order, Random(machine.random.Next()), machine.threads);
  machine.schedule.ReleaseBlock(machine.released.data(), machine.released.size());
}

void RunBlock(Machine& machine, uint64_t number) {
  StartBlock(machine, number);
  Publish(&machine.order);
  machine.running = machine.schedule.Next();
  SwitchFiber(machine.main, machine.running->fiber);
  Observe(&machine.order);
  machine.running = nullptr;
  if (!machine.error.empty()) return;
  const std::string trespass = machine.shared.Trespass();
  if (!trespass.empty()) {
    machine.error = trespass + "\n  in kernel " + machine.kernel->name +
                    Format(", block (%u,%u,%u)", machine.block.x, machine.block.y, machine.block.z);
  }
}

std::vector<uint64_t> BlockOrder(Machine& machine) {
  std::vector<uint64_t> order(Count(machine.launch.grid));
  std::iota(order.begin(), order.end(), uint64_t{0});
  if (machine.settings.order == Order::kDescending) std::reverse(order.begin(), order.end());
  if (machine.settings.order == Order::kRandom) {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[machine.random.Below(static_cast<uint32_t>(i))]);
    }
  }
  return order;
}

}  // namespace

void ExitThread() {
  Machine& machine = *this_machine;
  Thread& self = *machine.running;
  Thread* const next = Exit(machine);
  self.fiber.abandoned = true;
  machine.running = next;
  LeaveFiber(self.fiber, next == nullptr ? machine.main : next->fiber);
}

std::string CheckLaunch(const Kernel& kernel, const Launch& launch) {
  const Dim3 &grid = launch.grid, &block = launch.block;
  const std::string which = "launch of " + kernel.name + ": ";
  if (Count(grid) == 0 || Count(block) == 0) return which + "an empty grid or block";
  if (grid.x > kMaxGridX || grid.y > kMaxGridY || grid.z > kMaxGridZ) {
    return which +
           Format("grid (%u,%u,%u): at most (%u,%u,%u)", grid.x, grid.y, grid.z, kMaxGridX, kMaxGridY, kMaxGridZ);
  }
  if (block.x > kMaxBlockX || block.y > kMaxBlockY || block.z > kMaxBlockZ) {
    return which + Format("block (%u,%u,%u): at most (%u,%u,%u)", block.x, block.y, block.z, kMaxBlockX, kMaxBlockY,
                          kMaxBlockZ);
  }
  const uint32_t most = std::min(kernel.max_threads, kMaxThreadsPerBlock);
  if (Count(block) > most) {
    return which + Format("%llu threads in a block: at most %u", static_cast<unsigned long long>(Count(block)), most);
  }
  if (kernel.static_shared_bytes > kMaxStaticShared) {
    return which +
           Format("%zu bytes of static shared memory: at most %zu", kernel.static_shared_bytes, kMaxStaticShared);
  }
  if (kernel.static_shared_bytes + launch.dynamic_shared_bytes > kMaxSharedPerBlock) {
    return which + Format("%zu bytes of shared memory: at most %zu",
                          kernel.static_shared_bytes + launch.dynamic_shared_bytes, kMaxSharedPerBlock);
  }
  return "";
}

std::string RunGrid(const Kernel& kernel, const Launch& launch, const unsigned char* params) {
  if (std::string problem = CheckLaunch(kernel, launch); !problem.empty()) return problem;
  EngineScope scope;
  thread_local Machine machine;
  this_machine = &machine;
  AdoptThread(machine.main);
  machine.kernel = &kernel;
  machine.params = params;
  machine.launch = launch;
  machine.threads = static_cast<uint32_t>(Count(launch.block));
  machine.settings = CurrentSettings();
  machine.random = Random(machine.settings.seed + 0x9E37 * machine.grids);
  machine.error.clear();
  machine.shared.Arrange(kernel.shared, launch.dynamic_shared_bytes);
  PrepareThreads(machine);
  for (const uint64_t number : BlockOrder(machine)) {
    RunBlock(machine, number);
    if (!machine.error.empty()) break;
  }
  machine.shared.Close();
  ++machine.grids;
  return std::move(machine.error);
}

}  // namespace host_cuda
