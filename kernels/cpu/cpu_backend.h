// The CPU backend: kernels/backend.h on host memory with a pool of threads.
//
// Modes of arithmetic, each with its numerics id; instruction sets never differ within a mode.
// "int8h.1", the default of workers: products in int8 after a rotation (int8/int8_table.h), K and V in bf16
// (paged_kv.h). "native.1": the file's four or eight bits by activations rounded in blocks (native/native_table.h),
// likewise. "bf16w.1": weights in bf16, activations in f32 (bf16/bf16_table.h), likewise. "f32.1", the reference:
// weights are dequantised in registers, everything else is f32 under the rules of docs/architecture.md, "Same bits":
// sixteen virtual lanes and a fixed tree in every reduction, explicit fma, our own exp. The vectorised kernels (AVX2,
// AVX-512) give the same bits as the scalar ones. With K and V in int8 a name ends in "+kv8.1".
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace sluice::kernels {

// kAuto takes the best the CPU has. The environment variable SLUICE_CPU_ISA (scalar, avx2, avx512, amx) overrides
// kAuto, for tests and for tools that cannot run AVX-512.
enum class CpuIsa { kAuto, kScalar, kAvx2, kAvx512, kAmx };

enum class CpuCompute { kF32, kInt8, kNative, kBf16 };

// "f32", "int8", "native", "bf16".
std::optional<CpuCompute> CpuComputeFromName(std::string_view name);

struct CpuOptions {
  int threads = 1;
  CpuCompute compute = CpuCompute::kF32;
  std::optional<KvDType> kv;  // unset: f32 in f32, else bf16
  CpuIsa isa = CpuIsa::kAuto;
};

// INVALID_ARGUMENT for a KV type that the mode does not have: f32 in f32; bf16 and int8 in the others.
// Bytes that a KV pool takes.
size_t CpuKvPoolBytes(const KvLayout& layout, int num_blocks);

// FAILED_PRECONDITION with one clear line when the CPU lacks AVX2, FMA or F16C, or the asked ISA.
absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(const CpuOptions& options);

// The ISA a backend made with `options` would use: "scalar", "avx2", "avx512" or "amx".
absl::StatusOr<CpuIsa> ResolveCpuIsa(CpuIsa asked);
std::string_view Name(CpuIsa isa);

}  // namespace sluice::kernels
