// The subset of cuBLASLt: cublasLtMatmul of dense matrices, row- or column-major, with batches and the epilogues bias,
// relu and gelu; f32, f16, bf16, fp8 (e4m3, with scales), int8 to int32. A heuristic finds, for what this could run, an
// algorithm with a workspace, if one is allowed, and one without.
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "tests/host_cuda/cublas/gemm.h"
#include "tests/host_cuda/cublas/lt_objects.h"
#include "tests/host_cuda/cublas/lt_problem.h"
#include "tests/host_cuda/cublas/status.h"
#include "tests/host_cuda/runtime/report.h"

struct cublasLtContext {};

namespace host_cuda::blas {
namespace {

std::atomic<size_t> cache_capacity{8192};

cublasStatus_t Refused(const char* call, cublasStatus_t status, const std::string& why) {
  if (!why.empty())
    Report(std::string(call) + ": " + why + (status == CUBLAS_STATUS_NOT_SUPPORTED ? " (not here)" : ""));
  return status;
}

cublasLtMatmulHeuristicResult_t ResultOf(const Algorithm& algorithm) {
  cublasLtMatmulHeuristicResult_t result = {};
  Write(algorithm, &result.algo);
  result.workspaceSize = algorithm.workspace;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return result;
}

void SetScalars(const Description& about, const void* alpha, const void* beta, Gemm* gemm) {
  for (const auto& [scalar, from] : {std::pair{&gemm->alpha, alpha}, {&gemm->beta, beta}}) {
    if (about.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
      scalar->on_device = from;
    } else if (about.scale == CUDA_R_32I) {
      scalar->whole = *static_cast<const int32_t*>(from);
    } else {
      scalar->value = *static_cast<const float*>(from);
    }
  }
}

// The pointers, against what the preference promised when the algorithm was looked for.
std::string Misaligned(const Algorithm& algorithm, const Gemm& gemm) {
  const std::pair<const char*, const void*> matrices[] = {
      {"A", gemm.a.data}, {"B", gemm.b.data}, {"C", gemm.c.data}, {"D", gemm.d.data}};
  for (size_t i = 0; i < 4; ++i) {
    const auto& [name, p] = matrices[i];
    const uint32_t alignment = std::max(1u, algorithm.alignment[i]);
    if (reinterpret_cast<uintptr_t>(p) % alignment == 0) continue;
    return std::string("matrix ") + name + " is not aligned to the " + std::to_string(alignment) +
           " bytes that the preference promised";
  }
  return {};
}

cublasStatus_t UseAlgorithm(const char* call, const Problem& problem, const cublasLtMatmulAlgo_t* algo, void* workspace,
                            size_t bytes, Gemm* gemm) {
  const auto algorithm = algo != nullptr ? Read<Algorithm>(algo) : Plain(problem, Preference{});
  std::string wrong = WhatIsWrong(algorithm, problem);
  if (!wrong.empty()) return Refused(call, CUBLAS_STATUS_INVALID_VALUE, wrong);
  wrong = Misaligned(algorithm, *gemm);
  if (!wrong.empty()) return Refused(call, CUBLAS_STATUS_INVALID_VALUE, wrong);
  if (algorithm.workspace > 0 && (workspace == nullptr || bytes < algorithm.workspace)) {
    return Refused(call, CUBLAS_STATUS_INVALID_VALUE,
                   "the algorithm needs " + std::to_string(algorithm.workspace) + " bytes of workspace, " +
                       std::to_string(workspace == nullptr ? 0 : bytes) + " are given");
  }
  gemm->workspace = algorithm.workspace > 0 ? workspace : nullptr;
  gemm->workspace_bytes = algorithm.workspace;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace host_cuda::blas

using namespace host_cuda::blas;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (const auto failure = Injected(__func__)) return *failure;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion() {
  return CUDART_VERSION;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return StatusName(status);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return StatusText(status);
}

// There is no cache to be filled; heuristics cost nothing here.
cublasStatus_t cublasLtHeuristicsCacheGetCapacity(size_t* capacity) {
  *capacity = cache_capacity;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtHeuristicsCacheSetCapacity(size_t capacity) {
  cache_capacity = capacity;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wishes, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (const auto failure = Injected(__func__)) return *failure;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested <= 0 || results == nullptr || found == nullptr || wishes == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  const Problem problem = ReadProblem(description, a, b, c, d);
  const auto preference = Read<Preference>(wishes);
  if (preference.search_mode != CUBLASLT_SEARCH_BEST_FIT) {
    return Refused(__func__, CUBLAS_STATUS_NOT_SUPPORTED, "this search mode");
  }
  Gemm gemm;
  std::string why;
  const cublasStatus_t status = Describe(problem, &gemm, &why);
  if (status != CUBLAS_STATUS_SUCCESS) return Refused(__func__, status, why);
  const Algorithm large = WithWorkspace(problem, preference);
  if (large.workspace <= preference.max_workspace) results[(*found)++] = ResultOf(large);
  if (*found < requested) results[(*found)++] = ResultOf(Plain(problem, preference));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo == nullptr || result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const auto algorithm = Read<Algorithm>(algo);
  const std::string wrong = WhatIsWrong(algorithm, ReadProblem(description, a, b, c, d));
  if (!wrong.empty()) return Refused(__func__, CUBLAS_STATUS_INVALID_VALUE, wrong);
  *result = ResultOf(algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (const auto failure = Injected(__func__)) return *failure;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem problem = ReadProblem(description, a_layout, b_layout, c_layout, d_layout);
  Gemm gemm;
  std::string why;
  cublasStatus_t status = Describe(problem, &gemm, &why);
  if (status != CUBLAS_STATUS_SUCCESS) return Refused(__func__, status, why);
  const bool needs_bias = (problem.about.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (needs_bias && gemm.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  gemm.a = View(problem.a, a, problem.about.a_operation);
  gemm.b = View(problem.b, b, problem.about.b_operation);
  gemm.c = View(problem.c, c, CUBLAS_OP_N);
  gemm.d = View(problem.d, d, CUBLAS_OP_N);
  status = UseAlgorithm(__func__, problem, algo, workspace, workspace_bytes, &gemm);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  SetScalars(problem.about, alpha, beta, &gemm);
  return EnqueueGemm(stream, __func__, gemm) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
