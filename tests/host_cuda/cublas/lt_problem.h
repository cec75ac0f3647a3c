// A product as cuBLASLt's descriptors describe it: whether it is one, whether this computes it, and the algorithms that
// a heuristic offers for it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "tests/host_cuda/cublas/gemm.h"
#include "tests/host_cuda/cublas/lt_objects.h"

namespace host_cuda::blas {

struct Problem {
  Description about;
  Layout a, b, c, d;
};

Problem ReadProblem(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d);

// The product but for its pointers. Beside the error, `why` says what is not supported, if the status is that.
cublasStatus_t Describe(const Problem& problem, Gemm* gemm, std::string* why);

// A matrix as the product sees it.
Matrix View(const Layout& layout, const void* data, int32_t operation);

// What lies in a cublasLtMatmulAlgo_t. It belongs to one problem: with another one, even if only its shape differs, it
// is refused, though the real library takes some; a cache of algorithms with too short a key shows that way.
struct Algorithm {
  uint64_t magic, problem, workspace;
  uint32_t alignment[4];  // of A, B, C, D, that the preference promised
};

Algorithm Plain(const Problem& problem, const Preference& preference);
// One that needs a workspace, which it writes over.
Algorithm WithWorkspace(const Problem& problem, const Preference& preference);

// Empty: it is one, of this problem.
std::string WhatIsWrong(const Algorithm& algorithm, const Problem& problem);

}  // namespace host_cuda::blas
