// The attention phases of a decode step through the backend: RoPE, the write of K and V and attention of 3 KV heads of
// 64 for 9 heads, every sequence at the same context. Layers enough that K and V, 96 MB of them, come from memory; as a
// share of what as many threads read from a set of that size, in the same run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/machine_limits.h"
#include "glog/logging.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::bench {
namespace {

constexpr int kHeads = 9, kKvHeads = 3, kDim = 64, kBlock = 16;
constexpr size_t kSet = size_t{96} << 20;

double ReadPeak(int threads) {
  static std::map<int, double> known;
  auto [it, fresh] = known.try_emplace(threads);
  if (fresh) it->second = ReadGBs(kSet, threads);
  return it->second;
}

template <class T>
T Take(absl::StatusOr<T> made) {
  CHECK(made.ok()) << made.status();
  return *std::move(made);
}

void BM_PagedAttention(benchmark::State& state, kernels::CpuOptions options) {
  options.threads = int(state.range(0));
  const int seqs = int(state.range(1)), context = int(state.range(2));
  const auto backend = Take(kernels::NewCpuBackend(options));
  const int blocks = kernels::BlocksFor(context, kBlock);
  kernels::KvLayout layout{1, kKvHeads, kDim, kBlock, backend->kv_dtype()};
  const size_t layer_bytes = layout.block_bytes() * size_t(seqs) * size_t(blocks);
  layout.num_layers = int(std::max<size_t>(1, kSet / layer_bytes));
  const auto kv = Take(backend->NewKvPool(layout, seqs * blocks));
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    std::fill_n(static_cast<uint8_t*>(kv->layer_data(layer)), layer_bytes, uint8_t{0x3d});
  }
  const auto ctx = Take(backend->NewContext(
      {.max_rows = seqs, .max_seqs = seqs, .max_logits = seqs, .max_ffn = 64, .max_hidden = kHeads * kDim}));
  const auto q = Take(ctx->NewActivation(kHeads * kDim, kernels::ActivationUse::kProducts)), out = Take(ctx->NewActivation(kHeads * kDim, kernels::ActivationUse::kProducts));
  const auto k = Take(ctx->NewActivation(kKvHeads * kDim, kernels::ActivationUse::kProducts)), v = Take(ctx->NewActivation(kKvHeads * kDim, kernels::ActivationUse::kProducts));
  const std::vector<float> cos_sin(size_t(context) * kDim, 0.5f);
  const auto rope = Take(backend->PackTable({kernels::DType::kF32, cos_sin.data(), context, kDim}));

  std::vector<int32_t> tokens(size_t(seqs), 1), row_begin, contexts(size_t(seqs), context), table, logit_rows;
  for (int i = 0; i <= seqs; ++i) row_begin.push_back(i);
  for (int i = 0; i < seqs * blocks; ++i) table.push_back(i);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  for (auto _ : state) {
    ctx->BeginStep({tokens, row_begin, contexts, table, blocks, logit_rows}, layout);
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      ctx->RopeKv({.q = q.get(),
                   .k = k.get(),
                   .v = v.get(),
                   .rope = rope.get(),
                   .rotary_dim = kDim,
                   .kv = kv.get(),
                   .layer = layer});
      ctx->Attention({.q = q.get(),
                      .out = out.get(),
                      .kv = kv.get(),
                      .layer = layer,
                      .num_heads = kHeads,
                      .scale = 1 / std::sqrt(float(kDim))});
    }
  }
  const double bytes = double(layer_bytes) * layout.num_layers * double(state.iterations());
  state.counters["GBs"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_read"] = benchmark::Counter(bytes / 1e9 / ReadPeak(options.threads), benchmark::Counter::kIsRate);
  state.counters["keys/us"] = benchmark::Counter(
      double(seqs) * context * layout.num_layers * double(state.iterations()) / 1e6, benchmark::Counter::kIsRate);
}

const int kRegistered = [] {
  const auto add = [](const std::string& name, const kernels::CpuOptions& options) {
    auto* bench = benchmark::RegisterBenchmark(("PagedAttention/" + name).c_str(),
                                               [=](benchmark::State& s) { BM_PagedAttention(s, options); });
    bench->ArgNames({"threads", "seqs", "context"})->Unit(benchmark::kMillisecond)->UseRealTime();
    for (const int threads : {1, 2}) {
      for (const int seqs : {1, 8, 32}) {
        for (const int context : {256, 1024, 2048}) bench->Args({threads, seqs, context});
      }
    }
  };
  add("bf16", {.compute = kernels::CpuCompute::kInt8});
  add("int8", {.compute = kernels::CpuCompute::kInt8, .kv = kernels::KvDType::kInt8});
  return 0;
}();

}  // namespace
}  // namespace sluice::bench
