// Benchmarks of the CPU kernels on one thread, each also as a share of the limit that binds it, measured in this run:
// `of_fma` of the fused multiply-add peak, `of_dot` of the int8 dot-product peak, `of_read` of the bandwidth of reading
// a set of the same size.
//
//   kernels_bench [--benchmark_filter=...]      SLUICE_CPU_ISA=avx2 kernels_bench
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/decoder_skeleton.h"
#include "bench/machine_limits.h"
#include "glog/logging.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/int8/int8_weight.h"
#include "kernels/cpu/isa.h"
#include "kernels/dequant.h"

namespace sluice::bench {
namespace {

using kernels::DType;
using kernels::cpu::PadRow;

double FmaPeak() {
  static const double peak = FmaGflops();
  return peak;
}

double ReadPeak(size_t bytes) {
  static std::map<size_t, double> known;
  auto [it, fresh] = known.try_emplace(bytes);
  if (fresh) it->second = ReadGBs(bytes);
  return it->second;
}

// Found out once: asking the CPU what it has takes microseconds in a virtual machine.
kernels::CpuIsa Isa() {
  static const auto isa = kernels::ResolveCpuIsa(kernels::CpuIsa::kAuto);
  CHECK(isa.ok()) << isa.status();
  return *isa;
}

const kernels::cpu::KernelTable& Kernels() {
  return kernels::cpu::KernelsFor(Isa());
}

const kernels::cpu::Int8Table& Int8Kernels() {
  return kernels::cpu::Int8KernelsFor(Isa());
}

const kernels::cpu::KvTable& KvKernels(kernels::KvDType type) {
  return kernels::cpu::KvFor(Isa(), type);
}

double DotPeak() {
  static const double peak = Int8DotGops();
  return peak;
}

void ReportFlops(benchmark::State& state, double flops_each) {
  const double flops = flops_each * double(state.iterations());
  state.counters["GFLOPs"] = benchmark::Counter(flops / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_fma"] = benchmark::Counter(flops / 1e9 / FmaPeak(), benchmark::Counter::kIsRate);
}

void ReportBytes(benchmark::State& state, double bytes_each, size_t set) {
  const double bytes = bytes_each * double(state.iterations());
  state.counters["GBs"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_read"] = benchmark::Counter(bytes / 1e9 / ReadPeak(set), benchmark::Counter::kIsRate);
}

// Many copies of one matrix, 96 MB in all, so that weights come from where a model's would.
void BM_Matmul(benchmark::State& state, DType type, int64_t n, int64_t k) {
  constexpr size_t kSet = 96 << 20;
  const int64_t m = state.range(0);
  const size_t matrix = size_t(n) * kernels::RowBytes(type, k);
  const size_t copies = std::max<size_t>(1, kSet / matrix);
  std::vector<uint8_t> w(copies * matrix);
  for (size_t i = 0; i < w.size(); ++i) w[i] = uint8_t(i * 2654435761u >> 13) & 0x3f;
  kernels::cpu::HostMemory x = *kernels::cpu::HostMemory::Map(size_t(m * PadRow(k)) * 4);
  kernels::cpu::HostMemory tile = *kernels::cpu::HostMemory::Map(size_t(PadRow(k)) * 32);
  std::vector<float> y(size_t(m * n));
  size_t copy = 0;
  for (auto _ : state) {
    Kernels().matmul({.type = type,
                      .w = w.data() + copy * matrix,
                      .row_bytes = int64_t(kernels::RowBytes(type, k)),
                      .cols = k,
                      .x = x.floats(),
                      .ldx = PadRow(k),
                      .rows = m,
                      .y = y.data(),
                      .ldy = n,
                      .bias = nullptr,
                      .accumulate = false,
                      .tile = tile.floats()},
                     0, n);
    copy = (copy + 1) % copies;
  }
  ReportFlops(state, 2.0 * double(m) * double(n) * double(k));
  if (m == 1) ReportBytes(state, double(matrix), kSet);
}

// The same in int8 mode: products alone, of rows that are quantised already.
void BM_Int8Matmul(benchmark::State& state, int64_t n, int64_t k) {
  constexpr size_t kSet = 96 << 20;
  const int64_t m = state.range(0);
  const size_t matrix = size_t(n * k);
  const size_t copies = kSet / matrix;
  std::vector<int8_t> w(copies * matrix);
  for (size_t i = 0; i < w.size(); ++i) w[i] = int8_t(i * 2654435761u >> 13);
  std::vector<uint8_t> x(size_t(m * k), 131);
  std::vector<float> scales(size_t(std::max(n, m)), 0.01f), y(size_t(m * n));
  std::vector<int32_t> offsets(size_t(n), 1);
  size_t copy = 0;
  for (auto _ : state) {
    Int8Kernels().matmul({x.data(), scales.data(), m}, {w.data() + copy * matrix, scales.data(), offsets.data(), k, n},
                         {y.data(), n, nullptr, false}, 0, n / kernels::cpu::kPanelRows);
    copy = (copy + 1) % copies;
  }
  const double ops = 2.0 * double(m) * double(n) * double(k) * double(state.iterations());
  state.counters["GOPs"] = benchmark::Counter(ops / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_dot"] = benchmark::Counter(ops / 1e9 / DotPeak(), benchmark::Counter::kIsRate);
  if (m == 1) ReportBytes(state, double(matrix), kSet);
}

// Norm, rotation and rounding of one row.
void BM_Quantise(benchmark::State& state) {
  const int64_t k = state.range(0);
  const kernels::cpu::Rotation rotation = kernels::cpu::PlanRotation(k);
  std::vector<float> x(size_t(PadRow(k)), 0.5f), norm(size_t(PadRow(k)), 1.1f), work(x.size());
  std::vector<uint8_t> bytes(size_t(kernels::cpu::PadInt8(k)));
  for (auto _ : state) {
    Kernels().rms_norm(x.data(), norm.data(), 1e-5f, k, work.data());
    Int8Kernels().rotate(rotation, work.data());
    benchmark::DoNotOptimize(Int8Kernels().round(work.data(), rotation.vectors, bytes.data(), int64_t(bytes.size())));
  }
}

// Attention over K and V in few bits, as BM_Attention.
void BM_KvAttention(benchmark::State& state, kernels::KvDType type) {
  constexpr int kDim = 64, kHeads = 3, kBlock = 16;
  const int tokens = int(state.range(0)), context = int(state.range(1));
  const int blocks = kernels::BlocksFor(context, kBlock);
  // Many sequences, one after the other, so that K and V come from where those of a batch would.
  const kernels::KvLayout layout{1, 1, kDim, kBlock, type};
  const int sequences = std::max(1, int((size_t{96} << 20) / (size_t(blocks) * layout.block_bytes())));
  const size_t bytes = size_t(sequences) * size_t(blocks) * layout.block_bytes();
  kernels::cpu::HostMemory memory = *kernels::cpu::HostMemory::Map(bytes + 64);
  const std::byte* kv = memory.data();
  std::fill_n(memory.data(), bytes, std::byte{0x3d});
  std::vector<int32_t> table;
  for (int i = 0; i < sequences * blocks; ++i) table.push_back(i);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  std::vector<float> q(size_t(tokens) * kHeads * kDim, 0.1f), out(q.size());
  kernels::cpu::HostMemory scratch =
      *kernels::cpu::HostMemory::Map(size_t(kernels::cpu::PagedAttentionScratchFloats(kDim)) * 4);
  int sequence = 0;
  for (auto _ : state) {
    KvKernels(type).attention(
        {.q = q.data(),
         .ldq = kHeads * kDim,
         .out = out.data(),
         .ldo = kHeads * kDim,
         .tokens = tokens,
         .heads = kHeads,
         .first_position = context - tokens,
         .head_dim = kDim,
         .scale = 0.125f,
         .kv = kv,
         .strides = {int64_t(layout.block_bytes()), int64_t(layout.plane_bytes()), int64_t(layout.scales_offset())},
         .block_size = kBlock,
         .blocks = table.data() + sequence * blocks,
         .first_key = 0,
         .end_key = context,
         .states = nullptr,
         .next = {kv, table.data() + (sequence + 1) % sequences * blocks, 0, context},
         .scratch = scratch.floats()});
    sequence = (sequence + 1) % sequences;
  }
  const double keys = double(tokens) * (context - (tokens - 1) / 2.0);
  ReportFlops(state, 4.0 * kHeads * kDim * keys);
  if (tokens == 1) ReportBytes(state, double(blocks) * double(layout.block_bytes()), 96 << 20);
}

// One KV head with three query heads of 64; tokens at the end of a context.
void BM_Attention(benchmark::State& state) {
  constexpr int kDim = 64, kHeads = 3, kBlock = 16;
  const int tokens = int(state.range(0)), context = int(state.range(1));
  const int blocks = kernels::BlocksFor(context, kBlock);
  std::vector<float> kv(size_t(blocks) * 2 * kBlock * kDim, 0.25f);
  std::vector<int32_t> table;
  for (int i = 0; i < blocks; ++i) table.push_back((i * 7 + 3) % blocks);
  std::vector<float> q(size_t(tokens) * kHeads * kDim, 0.1f), out(q.size());
  kernels::cpu::HostMemory scratch =
      *kernels::cpu::HostMemory::Map(size_t(kernels::cpu::AttentionScratchFloats(kDim)) * 4);
  for (auto _ : state) {
    Kernels().attention({.q = q.data(),
                         .ldq = kHeads * kDim,
                         .out = out.data(),
                         .ldo = kHeads * kDim,
                         .tokens = tokens,
                         .heads = kHeads,
                         .first_position = context - tokens,
                         .head_dim = kDim,
                         .scale = 0.125f,
                         .kv = kv.data(),
                         .block_stride = 2 * kBlock * kDim,
                         .v_offset = kBlock * kDim,
                         .block_size = kBlock,
                         .blocks = table.data(),
                         .scratch = scratch.floats()});
  }
  const double keys = double(tokens) * (context - (tokens - 1) / 2.0);
  ReportFlops(state, 4.0 * kHeads * kDim * keys);
  if (tokens == 1) ReportBytes(state, double(kv.size()) * 4, kv.size() * 4);
}

// A 135M model of random weights, one for each mode that was asked for.
struct SkeletonOfMode {
  explicit SkeletonOfMode(kernels::CpuCompute compute)
      : backend(*kernels::NewCpuBackend({.compute = compute})), skeleton(*backend, kSmolLm135M, 512, 32, 2048) {}
  std::unique_ptr<kernels::Backend> backend;
  DecoderSkeleton skeleton;
};

DecoderSkeleton& Skeleton(kernels::CpuCompute compute) {
  static std::map<kernels::CpuCompute, std::unique_ptr<SkeletonOfMode>> known;
  auto& mode = known[compute];
  if (mode == nullptr) mode = std::make_unique<SkeletonOfMode>(compute);
  return mode->skeleton;
}

// A decode step of a 135M model: tokens per second of all sequences together.
void BM_Decode135M(benchmark::State& state, kernels::CpuCompute compute) {
  const int seqs = int(state.range(0)), context = int(state.range(1));
  DecoderSkeleton& skeleton = Skeleton(compute);
  for (auto _ : state) skeleton.Step(seqs, 1, context);
  state.counters["tokens/s"] =
      benchmark::Counter(double(seqs) * double(state.iterations()), benchmark::Counter::kIsRate);
  ReportBytes(state, double(skeleton.weight_bytes()), 96 << 20);
}

// A prompt in chunks of at most 512 tokens. of_fma counts the layers' matrices and attention.
void BM_Prefill135M(benchmark::State& state, kernels::CpuCompute compute) {
  const int tokens = int(state.range(0));
  DecoderSkeleton& skeleton = Skeleton(compute);
  for (auto _ : state) {
    for (int done = 0; done < tokens; done += 512) skeleton.Step(1, std::min(512, tokens - done), done);
  }
  const double n = tokens;
  state.counters["tokens/s"] = benchmark::Counter(n * double(state.iterations()), benchmark::Counter::kIsRate);
  ReportFlops(state, n * skeleton.matmul_flops_per_row() + 4.0 * 30 * 9 * 64 * n * (n + 1) / 2);
}

const int kRegistered = [] {
  const auto matmul = [](const char* name, DType type, int64_t n, int64_t k) {
    benchmark::RegisterBenchmark((std::string("Matmul/") + name).c_str(),
                                 [=](benchmark::State& s) { BM_Matmul(s, type, n, k); })
        ->Arg(1)
        ->Arg(8)
        ->Arg(64)
        ->Arg(512);
  };
  matmul("Q4_1_1536x576", DType::kQ4_1, 1536, 576);
  matmul("Q4_1_576x1536", DType::kQ4_1, 576, 1536);
  matmul("Q8_0_8192x576", DType::kQ8_0, 8192, 576);
  matmul("Q4_K_1024x1024", DType::kQ4_K, 1024, 1024);
  matmul("Q6_K_1024x1024", DType::kQ6_K, 1024, 1024);
  const auto int8 = [](const char* name, int64_t n, int64_t k) {
    benchmark::RegisterBenchmark((std::string("Int8Matmul/") + name).c_str(),
                                 [=](benchmark::State& s) { BM_Int8Matmul(s, n, k); })
        ->Arg(1)
        ->Arg(2)
        ->Arg(8)
        ->Arg(32)
        ->Arg(64)
        ->Arg(256);
  };
  int8("1536x576", 1536, 576);
  int8("576x1536", 576, 1536);
  int8("8192x576", 8192, 576);
  matmul("F32_576x576", DType::kF32, 576, 576);
  matmul("BF16_576x576", DType::kBF16, 576, 576);
  return 0;
}();

BENCHMARK(BM_Quantise)->Name("Quantise")->Arg(576)->Arg(1536);
BENCHMARK_CAPTURE(BM_KvAttention, bf16, kernels::KvDType::kBF16)
    ->Name("Bf16Attention")
    ->Args({1, 256})
    ->Args({1, 1600})
    ->Args({16, 256})
    ->Args({16, 1600});
BENCHMARK_CAPTURE(BM_KvAttention, int8, kernels::KvDType::kInt8)
    ->Name("Int8Attention")
    ->Args({1, 256})
    ->Args({1, 1600})
    ->Args({16, 256})
    ->Args({16, 1600});
BENCHMARK(BM_Attention)->Name("Attention")->Args({1, 256})->Args({1, 1600})->Args({16, 256})->Args({16, 1600});
const int kModels = [] {
  for (const auto& [name, compute] :
       {std::pair("int8", kernels::CpuCompute::kInt8), std::pair("f32", kernels::CpuCompute::kF32)}) {
    benchmark::RegisterBenchmark((std::string("Decode135M/") + name).c_str(),
                                 [c = compute](benchmark::State& s) { BM_Decode135M(s, c); })
        ->Args({1, 128})
        ->Args({1, 256})
        ->Args({1, 1600})
        ->Args({8, 256})
        ->Args({32, 256})
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((std::string("Prefill135M/") + name).c_str(),
                                 [c = compute](benchmark::State& s) { BM_Prefill135M(s, c); })
        ->Arg(64)
        ->Arg(512)
        ->Arg(1600)
        ->Unit(benchmark::kMillisecond);
  }
  return 0;
}();

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const auto isa = sluice::kernels::ResolveCpuIsa(sluice::kernels::CpuIsa::kAuto);
  CHECK(isa.ok()) << isa.status();
  benchmark::AddCustomContext("isa", std::string(sluice::kernels::Name(*isa)));
  benchmark::AddCustomContext("fma_peak_gflops", std::to_string(sluice::bench::FmaPeak()));
  benchmark::AddCustomContext("int8_dot_peak_gops", std::to_string(sluice::bench::DotPeak()));
  benchmark::AddCustomContext("read_96MB_gbs", std::to_string(sluice::bench::ReadPeak(96 << 20)));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
