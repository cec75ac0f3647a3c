#include "kernels/cpu/isa.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace sluice::kernels {
namespace cpu {

CpuFeatures DetectCpu() {
  __builtin_cpu_init();  // its answers include the operating system's part
  CpuFeatures cpu;
  cpu.fma_avx2_f16c = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  cpu.avx512 = cpu.fma_avx2_f16c && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni");
  return cpu;
}

absl::StatusOr<CpuIsa> ChooseIsa(CpuIsa asked, const CpuFeatures& cpu, const char* env) {
  if (!cpu.fma_avx2_f16c) {
    return absl::FailedPreconditionError(
        "this CPU lacks AVX2, FMA or F16C, the least that the CPU backend needs; use a machine from 2013 or later");
  }
  if (asked == CpuIsa::kAuto && env != nullptr && *env != '\0') {
    const std::string_view name = env;
    if (name == "scalar") {
      asked = CpuIsa::kScalar;
    } else if (name == "avx2") {
      asked = CpuIsa::kAvx2;
    } else if (name == "avx512") {
      asked = CpuIsa::kAvx512;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("SLUICE_CPU_ISA is \"", env, "\"; it may be scalar, avx2 or avx512"));
    }
  }
  if (asked == CpuIsa::kAuto) return cpu.avx512 ? CpuIsa::kAvx512 : CpuIsa::kAvx2;
  if (asked == CpuIsa::kAvx512 && !cpu.avx512) {
    return absl::FailedPreconditionError(
        "this CPU lacks AVX-512 F, BW, VL, DQ or VNNI; ask for avx2 or leave the choice open");
  }
  return asked;
}

const KernelTable& KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return kAvx512Kernels;
    case CpuIsa::kAvx2:
      return kAvx2Kernels;
    default:
      return kScalarKernels;
  }
}

const Int8Table& Int8KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return kAvx512Int8;
    case CpuIsa::kAvx2:
      return kAvx2Int8;
    default:
      return kScalarInt8;
  }
}

const Bf16KvTable& Bf16KvFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return kAvx512Bf16Kv;
    case CpuIsa::kAvx2:
      return kAvx2Bf16Kv;
    default:
      return kScalarBf16Kv;
  }
}

}  // namespace cpu

absl::StatusOr<CpuIsa> ResolveCpuIsa(CpuIsa asked) {
  return cpu::ChooseIsa(asked, cpu::DetectCpu(), std::getenv("SLUICE_CPU_ISA"));
}

std::string_view Name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAuto:
      return "auto";
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace sluice::kernels
