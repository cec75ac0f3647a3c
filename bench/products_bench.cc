// The products of the modes native and bf16 (kernels/cpu/products.h) on one thread, of rows that are in their form
// already: as a share of the peak of int8 dot products or of fma, and for one row of what is read from a set of the
// size.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/machine_limits.h"
#include "glog/logging.h"
#include "kernels/cpu/bf16/bf16_products.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/native/native_products.h"

namespace sluice::bench {
namespace {

using kernels::DType;

constexpr size_t kSet = size_t{96} << 20;

std::unique_ptr<const kernels::cpu::Products> Make(bool native) {
  const kernels::CpuIsa isa = *kernels::ResolveCpuIsa(kernels::CpuIsa::kAuto);
  const auto& floats = kernels::cpu::KernelsFor(isa);
  return native ? kernels::cpu::NewNativeProducts(floats, kernels::cpu::NativeKernelsFor(isa))
                : kernels::cpu::NewBf16Products(floats, kernels::cpu::Bf16KernelsFor(isa));
}

// Many packed copies of one matrix, so that weights come from where a model's would.
void BM_Products(benchmark::State& state, bool native, DType type, int64_t n, int64_t k) {
  const int64_t m = state.range(0);
  const auto products = Make(native);
  std::vector<uint8_t> bytes(size_t(n) * kernels::RowBytes(type, k));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 2654435761u >> 13) & 0x3f;
  const kernels::HostTensor tensor{type, bytes.data(), n, k};
  const size_t packed = products->PackedBytes(tensor);
  kernels::cpu::ThreadPool pool(1);
  std::vector<std::unique_ptr<kernels::Weight>> copies;
  for (size_t at = 0; at < kSet; at += packed) copies.push_back(*products->Pack(tensor, {}, pool));
  const auto x = *products->NewRows(m, k);
  x->Use(*copies[0]);
  for (int64_t i = 0; i < m; ++i) {
    std::vector<float> row(size_t(x->work_floats()), 0.5f);
    x->Set(i, row.data());
  }
  std::vector<float> y(size_t(m * n));
  size_t copy = 0;
  for (auto _ : state) {
    products->Multiply(*copies[copy], *x, m, {y.data(), n, nullptr, false}, 0, kernels::cpu::PanelsOf(*copies[copy]));
    copy = (copy + 1) % copies.size();
  }
  static const double dot_peak = Int8DotGops(), fma_peak = FmaGflops(), read_peak = ReadGBs(kSet);
  const double each = 1e-9 * double(state.iterations()), ops = 2.0 * double(m) * double(n) * double(k) * each;
  state.counters["GOPs"] = benchmark::Counter(ops, benchmark::Counter::kIsRate);
  state.counters[native ? "of_dot" : "of_fma"] =
      benchmark::Counter(ops / (native ? dot_peak : fma_peak), benchmark::Counter::kIsRate);
  if (m != 1) return;
  const double gigabytes = double(packed) * each;
  state.counters["GBs"] = benchmark::Counter(gigabytes, benchmark::Counter::kIsRate);
  state.counters["of_read"] = benchmark::Counter(gigabytes / read_peak, benchmark::Counter::kIsRate);
}

const int kRegistered = [] {
  const auto add = [](const char* name, bool native, DType type, int64_t n, int64_t k) {
    benchmark::RegisterBenchmark((std::string("Products/") + name).c_str(),
                                 [=](benchmark::State& s) { BM_Products(s, native, type, n, k); })
        ->Arg(1)
        ->Arg(8)
        ->Arg(32)
        ->Arg(256);
  };
  add("native_Q4_1_1536x576", true, DType::kQ4_1, 1536, 576);
  add("native_Q4_K_1024x1024", true, DType::kQ4_K, 1024, 1024);
  add("native_Q8_0_8192x576", true, DType::kQ8_0, 8192, 576);
  add("bf16_1536x576", false, DType::kBF16, 1536, 576);
  return 0;
}();

}  // namespace
}  // namespace sluice::bench
