// The CPU backend under the suite of every backend: each instruction set, and all of them with several thread counts as
// variants that must agree to the bit.
#include "absl/strings/str_cat.h"
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
  struct Mode {
    CpuCompute compute;
    const char *name, *numerics_id;
    double rms_error;  // of tiny random models, whose outputs are mostly rounding
  };
  const Mode modes[] = {{CpuCompute::kF32, "f32", "f32.1", 0},
                        {CpuCompute::kInt8, "int8", "int8h.1", 0.08},
                        {CpuCompute::kNative, "native", "native.1", 0.08},
                        {CpuCompute::kBf16, "bf16", "bf16w.1", 0.02}};
  std::vector<Subject> subjects;
  for (const Mode& mode : modes) {
    const CpuCompute compute = mode.compute;
    for (const CpuIsa isa : isas) {
      Subject s{.name = absl::StrCat(mode.name, "_", std::string(Name(isa))),
                .numerics_id = mode.numerics_id,
                .variants = {Make(compute, isa, 1)},
                .rms_error = mode.rms_error};
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
