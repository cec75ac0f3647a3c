// The CPU backend under the suite of every backend: each instruction set, and all of them with several thread counts as
// variants that must agree to the bit.
#include "kernels/conformance/conformance.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::kernels::conformance {
namespace {

Variant Make(CpuIsa isa, int threads) {
  return {std::string(Name(isa)) + "/" + std::to_string(threads),
          [=] { return NewCpuBackend({.threads = threads, .isa = isa}); }};
}

}  // namespace

std::vector<Case> ConformanceCases() {
  std::vector<CpuIsa> isas = {CpuIsa::kScalar, CpuIsa::kAvx2};
  if (ResolveCpuIsa(CpuIsa::kAvx512).ok()) isas.push_back(CpuIsa::kAvx512);
  std::vector<Case> cases;
  for (CpuIsa isa : isas) {
    Case c{.name = std::string(Name(isa)), .variants = {Make(isa, 1)}, .host_memory = true};
    if (isa == CpuIsa::kScalar) {
      for (size_t i = 0; i < isas.size(); ++i) c.variants.push_back(Make(isas[i], int(i) + 1));
    } else {
      c.variants.push_back(Make(isa, 2));
      c.variants.push_back(Make(isa, 3));
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace sluice::kernels::conformance
