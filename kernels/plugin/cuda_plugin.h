// What the CUDA backend's plugin (kernels/cuda/backend/plugin.cc) shows to the programs that load it, and loading it.
// Programs have no CUDA in them: they start without a driver, and a machine without a GPU needs none.
//
// Plugin and program are of one build: they exchange C++ objects. A plugin of another build is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace sluice::kernels {

// What multiplies. Our own kernels give a row the same bits in every step; cuBLASLt, which takes the steps of many
// rows, does not, so its workers have another numerics id. kAuto: cuBLASLt where it can be loaded.
enum class CudaGemm : uint8_t { kOwn, kCublasLt, kAuto };

// How matrices are kept. kInt8: half the memory, and half the traffic of decode; a little less exact, another numerics
// id. Goes with our own products alone.
enum class CudaWeights : uint8_t { kBf16, kInt8 };

struct CudaPluginOptions {
  int device = 0;
  bool graphs = true;                // record steps of decode rows and replay them
  KvDType kv = KvDType::kBF16;       // or kInt8
  std::string nccl_library;          // empty: libnccl.so.2, where the system's loader finds it
  double rank_timeout_seconds = 30;  // after which one of several ranks counts as lost
  CudaWeights weights = CudaWeights::kBf16;
  CudaGemm gemm = CudaGemm::kOwn;
  int gemm_rows = 65;            // cuBLASLt takes products of so many rows or more
  std::string cublaslt_library;  // empty: libcublasLt.so.13, where the system's loader finds it
};

struct CudaPlugin {
  const char* build;  // kCudaPluginBuild of what was built
  absl::StatusOr<std::unique_ptr<Backend>> (*new_backend)(const CudaPluginOptions& options);
};

// The one symbol of a plugin: a function that returns its CudaPlugin, which lives as long as the process.
inline constexpr char kCudaPluginSymbol[] = "sluice_cuda_plugin";
using CudaPluginFunction = const CudaPlugin* (*)();

// Of the interface; raised with every change of what crosses it. Compilers of one version agree about the rest.
inline constexpr char kCudaPluginBuild[] = "6, " __VERSION__;

// backend_cuda.so beside the running program.
std::string DefaultCudaPluginPath();

// Whether this machine shows an NVIDIA driver at all, without loading anything.
bool HasCudaDriver();

// Stays loaded for good. NOT_FOUND where there is no such file, FAILED_PRECONDITION with the loader's words where it
// cannot be loaded or is of another build.
absl::StatusOr<const CudaPlugin*> LoadCudaPlugin(const std::string& path);

}  // namespace sluice::kernels
