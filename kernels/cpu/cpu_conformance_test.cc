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

std::vector<Subject> Subjects() {
  std::vector<CpuIsa> isas = {CpuIsa::kScalar, CpuIsa::kAvx2};
  for (const CpuIsa isa : {CpuIsa::kAvx512, CpuIsa::kAmx}) {
    if (ResolveCpuIsa(isa).ok()) isas.push_back(isa);
  }
  std::vector<Subject> subjects;
  for (const CpuCompute compute : {CpuCompute::kF32, CpuCompute::kInt8}) {
    const bool int8 = compute == CpuCompute::kInt8;
    for (const CpuIsa isa : isas) {
      Subject s{.name = (int8 ? "int8_" : "f32_") + std::string(Name(isa)),
                .numerics_id = int8 ? "int8h.1" : "f32.1",
                .variants = {Make(compute, isa, 1)},
                .rms_error = int8 ? 0.08 : 0};
      if (isa == CpuIsa::kScalar) {
        for (size_t i = 0; i < isas.size(); ++i) s.variants.push_back(Make(compute, isas[i], int(i) + 1));
      } else {
        s.variants.push_back(Make(compute, isa, 2));
        s.variants.push_back(Make(compute, isa, 3));
      }
      subjects.push_back(std::move(s));
    }
  }
  return subjects;
}

[[maybe_unused]] const bool registered = RegisterConformance(Subjects());

}  // namespace

}  // namespace sluice::kernels::conformance
