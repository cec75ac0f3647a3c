// The CPU backend under the suite of every backend: each instruction set, and all of them with several thread counts as
// variants that must agree to the bit.
#include "kernels/conformance/conformance.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::kernels::conformance {
namespace {

Variant Make(CpuCompute compute, CpuIsa isa, int threads) {
  return {std::string(Name(isa)) + "/" + std::to_string(threads),
          [=] { return NewCpuBackend({.threads = threads, .compute = compute, .isa = isa}); }};
}

}  // namespace

std::vector<Case> ConformanceCases() {
  std::vector<CpuIsa> isas = {CpuIsa::kScalar, CpuIsa::kAvx2};
  for (const CpuIsa isa : {CpuIsa::kAvx512, CpuIsa::kAmx}) {
    if (ResolveCpuIsa(isa).ok()) isas.push_back(isa);
  }
  std::vector<Case> cases;
  for (const CpuCompute compute : {CpuCompute::kF32, CpuCompute::kInt8}) {
    const bool int8 = compute == CpuCompute::kInt8;
    for (const CpuIsa isa : isas) {
      Case c{.name = (int8 ? "int8_" : "f32_") + std::string(Name(isa)),
             .variants = {Make(compute, isa, 1)},
             .host_memory = true,
             .rms_error = int8 ? 0.08 : 0};
      if (isa == CpuIsa::kScalar) {
        for (size_t i = 0; i < isas.size(); ++i) c.variants.push_back(Make(compute, isas[i], int(i) + 1));
      } else {
        c.variants.push_back(Make(compute, isa, 2));
        c.variants.push_back(Make(compute, isa, 3));
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace sluice::kernels::conformance
