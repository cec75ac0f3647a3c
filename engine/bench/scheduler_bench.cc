// What planning and committing cost, without a model: scheduler, block tables, prefix cache and the making of a step's
// inputs, for one step of so many sequences. To be read against the time of a step: tens of milliseconds on a CPU.
//
// Not in the time: the execution (every row yields token 7), arrivals except where the name says so.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/runner/commit.h"
#include "engine/runner/step.h"
#include "engine/sequence_table.h"

namespace sluice::engine {
namespace {

constexpr int kBlock = 16, kContext = 8192, kPrompt = 512;

class World {
 public:
  World(int sequences, int num_blocks, bool caching)
      : table_({.block_size = kBlock,
                .num_blocks = num_blocks,
                .max_context = kContext,
                .vocab = 100,
                .prefix_caching = caching},
               {.max_step_tokens = 8192, .max_step_seqs = sequences}) {}

  // The first half of every prompt is the same.
  void Add(int answer) {
    EngineRequest r;
    r.id = ++last_id_;
    r.tokens.assign(kPrompt, 5);
    for (int i = kPrompt / 2; i < kPrompt; ++i) r.tokens[size_t(i)] = int32_t((r.id * 31 + uint64_t(i) * 7) % 100);
    r.num_prompt_tokens = kPrompt;
    r.may_wait = true;
    r.headroom_tokens = 1;
    r.sampling.max_tokens = answer;
    ok_ &= table_.Add(std::move(r)).ok();
  }

  // plan -> inputs -> (nothing) -> commit. Returns how many choices are over.
  int Step() {
    StepPlan plan = table_.scheduler().Plan();
    if (plan.empty()) return 0;
    StepWork step = MakeStep(++steps_, std::move(plan), kBlock);
    table_.kv().StepBegun(step.number);
    for (const SampleTask& task : step.tasks) {
      SampleResult& result = step.results.emplace_back();
      if (!task.samples) continue;
      result.tokens.push_back({.token = 7});
      task.states[0]->Advance(1, 7);
    }
    rows_ += int64_t(step.inputs.tokens.size());
    int over = 0;
    for (const TokenOutput& out : Commit(step, table_).tokens) over += out.last ? 1 : 0;
    return over;
  }

  const SequenceTable& table() const { return table_; }
  bool ok() const { return ok_; }
  int64_t rows() const { return rows_; }

 private:
  SequenceTable table_;
  uint64_t last_id_ = 0, steps_ = 0;
  int64_t rows_ = 0;
  bool ok_ = true;
};

int BlocksFor(int sequences, int tokens) {
  return sequences * (tokens / kBlock + 1);
}

void Report(benchmark::State& state, const World& world) {
  if (!world.ok()) state.SkipWithError("a request was refused");
  const double steps = double(state.iterations());
  state.counters["rows/step"] = double(world.rows()) / steps;
  state.counters["preemptions/step"] = double(world.table().scheduler().preemptions()) / steps;
}

// All sequences decode; contexts grow from 512 tokens.
void Decode(benchmark::State& state) {
  const int n = int(state.range(0));
  const auto fresh = [&] {
    auto world = std::make_unique<World>(n, BlocksFor(n, 2 * kPrompt + kBlock), true);
    for (int i = 0; i < n; ++i) world->Add(kPrompt);
    while (world->table().scheduler().waiting_tokens() > 0) world->Step();
    return world;
  };
  auto world = fresh();
  int left = kPrompt - n * kPrompt / 8192 - 8;
  for (auto _ : state) {
    if (--left == 0) {
      state.PauseTiming();
      world = fresh();
      left = kPrompt - n * kPrompt / 8192 - 8;
      state.ResumeTiming();
    }
    world->Step();
  }
  if (!world->ok()) state.SkipWithError("a request was refused");
}

// Who is over is replaced at once: answers of 64 tokens, so a sixty-fourth of the sequences ends and arrives in every
// step, with a prompt whose first half is cached.
void Churn(benchmark::State& state) {
  const int n = int(state.range(0));
  World world(n, 2 * BlocksFor(n, kPrompt + 64), true);
  for (int i = 0; i < n; ++i) world.Add(1 + i % 64);  // so that they do not all end at once
  for (int i = 0; i < 100; ++i) {
    for (int over = world.Step(); over > 0; --over) world.Add(64);
  }
  const int64_t before = world.rows();
  for (auto _ : state) {
    for (int over = world.Step(); over > 0; --over) world.Add(64);
  }
  Report(state, world);
  state.counters["rows/step"] = double(world.rows() - before) / double(state.iterations());
}

// Blocks for about two thirds of what would like to run: preemption and recompute all the time.
void Scarce(benchmark::State& state) {
  const int n = int(state.range(0));
  World world(n, BlocksFor(n, kPrompt + 64) / 2, true);
  for (int i = 0; i < n; ++i) world.Add(1 + i * 2);
  for (auto _ : state) {
    for (int over = world.Step(); over > 0; --over) world.Add(256);
  }
  Report(state, world);
}

BENCHMARK(Decode)->Arg(64)->Arg(128)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(Churn)->Arg(64)->Arg(128)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(Scarce)->Arg(64)->Arg(128)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice::engine

BENCHMARK_MAIN();
