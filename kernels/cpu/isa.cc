#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace sluice::kernels {
namespace cpu {

namespace {

// CPUID leaf 7: AMX-TILE and AMX-INT8. (__builtin_cpu_supports of g++ 12 does not know them.)
bool HasTiles() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 1) != 0 && (d >> 25 & 1) != 0;
}

// Tile registers are large: a process asks for them once, before it starts threads that use them.
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

CpuFeatures DetectCpu() {
  __builtin_cpu_init();  // its answers include the operating system's part
  CpuFeatures cpu;
  cpu.fma_avx2_f16c = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  cpu.avx512 = cpu.fma_avx2_f16c && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni");
  cpu.amx = cpu.avx512 && HasTiles() && MayUseTiles();
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
    } else if (name == "amx") {
      asked = CpuIsa::kAmx;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("SLUICE_CPU_ISA is \"", env, "\"; it may be scalar, avx2, avx512 or amx"));
    }
  }
  if (asked == CpuIsa::kAuto) return cpu.amx ? CpuIsa::kAmx : cpu.avx512 ? CpuIsa::kAvx512 : CpuIsa::kAvx2;
  if (asked == CpuIsa::kAmx && !cpu.amx) {
    return absl::FailedPreconditionError("this CPU or system lacks AMX tiles of int8; leave the choice open");
  }
  if (asked == CpuIsa::kAvx512 && !cpu.avx512) {
    return absl::FailedPreconditionError(
        "this CPU lacks AVX-512 F, BW, VL, DQ or VNNI; ask for avx2 or leave the choice open");
  }
  return asked;
}

const KernelTable& KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
    case CpuIsa::kAmx:
      return kAvx512Kernels;
    case CpuIsa::kAvx2:
      return kAvx2Kernels;
    default:
      return kScalarKernels;
  }
}

const Int8Table& Int8KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAmx:
      return kAmxInt8;
    case CpuIsa::kAvx512:
      return kAvx512Int8;
    case CpuIsa::kAvx2:
      return kAvx2Int8;
    default:
      return kScalarInt8;
  }
}

const NativeTable& NativeKernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
    case CpuIsa::kAmx:  // whose tiles would sum over two blocks
      return kAvx512Native;
    case CpuIsa::kAvx2:
      return kAvx2Native;
    default:
      return kScalarNative;
  }
}

const Bf16Table& Bf16KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512:
    case CpuIsa::kAmx:
      return kAvx512Bf16;
    case CpuIsa::kAvx2:
      return kAvx2Bf16;
    default:
      return kScalarBf16;
  }
}

const KvTable& KvFor(CpuIsa isa, KvDType type) {
  const bool int8 = type == KvDType::kInt8;
  switch (isa) {
    case CpuIsa::kAvx512:
    case CpuIsa::kAmx:
      return int8 ? kAvx512Int8Kv : kAvx512Bf16Kv;
    case CpuIsa::kAvx2:
      return int8 ? kAvx2Int8Kv : kAvx2Bf16Kv;
    default:
      return int8 ? kScalarInt8Kv : kScalarBf16Kv;
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
    case CpuIsa::kAmx:
      return "amx";
  }
  return "unknown";
}

}  // namespace sluice::kernels
