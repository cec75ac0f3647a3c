// cuBLASLt and NCCL as the sample plugin finds them: by name, at run time. Their absence is an error in words.
#pragma once

#include <cublasLt.h>
#include <nccl.h>

#include <string>

namespace host_cuda::sample {

struct BlasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) description_create;
  decltype(&cublasLtMatmulDescDestroy) description_destroy;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmul) matmul;
};

struct Nccl {
  decltype(&ncclCommInitAll) init_all;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
};

// Empty: all of it is there.
std::string Open(BlasLt* blas);
std::string Open(Nccl* nccl);

}  // namespace host_cuda::sample
