// Which kernels this CPU can run. See cpu_backend.h for the public question.
#pragma once

#include "kernels/cpu/bf16/bf16_table.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/native/native_table.h"
#include "kernels/cpu/paged_kv.h"

namespace sluice::kernels::cpu {

// What ResolveCpuIsa decides on, apart from the machine: pure, for tests.
struct CpuFeatures {
  bool fma_avx2_f16c = false;  // with the operating system saving the registers
  bool avx512 = false;         // F, BW, VL, DQ and VNNI, likewise
  bool amx = false;            // avx512, and tiles of int8 that the system lets this process use
};
CpuFeatures DetectCpu();

// `env` is the value of SLUICE_CPU_ISA, null if unset; it decides for kAuto only.
absl::StatusOr<CpuIsa> ChooseIsa(CpuIsa asked, const CpuFeatures& cpu, const char* env);

// REQUIRES: isa is not kAuto.
const KernelTable& KernelsFor(CpuIsa isa);
const Int8Table& Int8KernelsFor(CpuIsa isa);
const NativeTable& NativeKernelsFor(CpuIsa isa);
const Bf16Table& Bf16KernelsFor(CpuIsa isa);
// REQUIRES: type is kBF16 or kInt8.
const KvTable& KvFor(CpuIsa isa, KvDType type);

}  // namespace sluice::kernels::cpu
