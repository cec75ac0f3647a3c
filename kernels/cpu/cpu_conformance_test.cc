// The CPU backend under the suite of every backend: each instruction set, and all of them with several thread counts as
// variants that must agree to the bit.
#include "kernels/conformance/conformance.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::kernels::conformance {
namespace {

struct Mode {
  std::string name, numerics_id;
  CpuCompute compute;
  KvDType kv;
  double rms_error;  // of tiny random models, whose outputs are mostly rounding
};

const Mode kModes[] = {{"f32", "f32.1", CpuCompute::kF32, KvDType::kF32, 0},
                       {"int8", "int8h.1", CpuCompute::kInt8, KvDType::kBF16, 0.08},
                       {"int8_kv8", "int8h.1+kv8.1", CpuCompute::kInt8, KvDType::kInt8, 0.08},
                       {"native", "native.1", CpuCompute::kNative, KvDType::kBF16, 0.08},
                       {"native_kv8", "native.1+kv8.1", CpuCompute::kNative, KvDType::kInt8, 0.08},
                       {"bf16", "bf16w.1", CpuCompute::kBf16, KvDType::kBF16, 0.02}};

Variant Make(const Mode& mode, CpuIsa isa, int threads) {
  return {std::string(Name(isa)) + "/" + std::to_string(threads),
          [=] { return NewCpuBackend({.threads = threads, .compute = mode.compute, .kv = mode.kv, .isa = isa}); }};
}

std::vector<Subject> Subjects() {
  std::vector<CpuIsa> isas = {CpuIsa::kScalar, CpuIsa::kAvx2};
  for (const CpuIsa isa : {CpuIsa::kAvx512, CpuIsa::kAmx}) {
    if (ResolveCpuIsa(isa).ok()) isas.push_back(isa);
  }
  std::vector<Subject> subjects;
  for (const Mode& mode : kModes) {
    for (const CpuIsa isa : isas) {
      Subject s{.name = mode.name + "_" + std::string(Name(isa)),
                .numerics_id = mode.numerics_id,
                .variants = {Make(mode, isa, 1)},
                .rms_error = mode.rms_error};
      if (isa == CpuIsa::kScalar) {
        for (size_t i = 0; i < isas.size(); ++i) s.variants.push_back(Make(mode, isas[i], int(i) + 1));
      } else {
        s.variants.push_back(Make(mode, isa, 2));
        s.variants.push_back(Make(mode, isa, 3));
      }
      subjects.push_back(std::move(s));
    }
  }
  return subjects;
}

[[maybe_unused]] const bool registered = RegisterConformance(Subjects());

}  // namespace

}  // namespace sluice::kernels::conformance
