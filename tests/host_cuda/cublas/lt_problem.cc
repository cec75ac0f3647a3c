#include "tests/host_cuda/cublas/lt_problem.h"

#include <algorithm>
#include <utility>

#include "tests/host_cuda/cublas/status.h"

namespace host_cuda::blas {
namespace {

constexpr uint64_t kMagic = 0x6d6874697264616c;
constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;

bool Sound(const Layout& layout) {
  const bool row_major = layout.order == CUBLASLT_ORDER_ROW;
  return layout.ld >= static_cast<int64_t>(row_major ? layout.columns : layout.rows) && layout.batches >= 1;
}

bool Column(const Layout& layout) {
  return layout.order == CUBLASLT_ORDER_COL;
}

// What tensor cores of 8 bits ask for: A transposed, B not, both column-major, in steps of 4 (int8) or 16 (fp8)
// elements.
std::string WrongFor8Bits(const Problem& p, uint64_t step) {
  if (p.about.a_operation != CUBLAS_OP_T || p.about.b_operation != CUBLAS_OP_N) return "8-bit inputs but not A^T B";
  if (!Column(p.a) || !Column(p.b) || !Column(p.c) || !Column(p.d)) return "8-bit inputs that are not column-major";
  const auto multiple = [step](auto n) { return static_cast<uint64_t>(n) % step == 0; };
  const bool fits = multiple(p.a.rows) && multiple(p.a.columns) && multiple(p.a.ld) && multiple(p.b.ld);
  return fits ? "" : "8-bit inputs whose m, k or leading dimensions are no multiples of " + std::to_string(step);
}

std::string WrongForInts(const Problem& p) {
  if (p.a.type != CUDA_R_8I || p.b.type != CUDA_R_8I || p.c.type != CUDA_R_32I || p.d.type != CUDA_R_32I) {
    return "int32 sums of other types than int8 to int32";
  }
  if (p.about.scale != CUDA_R_32I) return "int32 sums with a scale type other than int32";
  if (p.about.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return "an epilogue after int32 sums";
  return WrongFor8Bits(p, 4);
}

std::string WrongForFloats(const Problem& p) {
  if (!SumsInFloat(p.about.compute) || p.about.scale != CUDA_R_32F) return "this compute or scale type";
  const bool fp8 = p.a.type == CUDA_R_8F_E4M3;
  if (p.a.type != p.b.type || p.c.type != p.d.type) return "A and B, or C and D, of different types";
  if (!(fp8 || Known(p.a.type)) || !Known(p.d.type)) return "this type of a matrix";
  if (!fp8 && p.d.type != CUDA_R_32F && p.d.type != p.a.type) return "this type of D for this type of A";
  if (fp8) return WrongFor8Bits(p, 16);
  return "";
}

std::string Unsupported(const Problem& p) {
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (layout->order != CUBLASLT_ORDER_COL && layout->order != CUBLASLT_ORDER_ROW) return "this order of a matrix";
  }
  switch (p.about.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      break;
    default:
      return "epilogue " + std::to_string(p.about.epilogue);
  }
  if (p.about.pointer_mode != CUBLASLT_POINTER_MODE_HOST && p.about.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return "this pointer mode";
  }
  const bool scaled = p.about.a_scale != nullptr || p.about.b_scale != nullptr;
  if (scaled && p.a.type != CUDA_R_8F_E4M3) return "scales of inputs that are not fp8";
  if (p.about.a_scale_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
      p.about.b_scale_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) {
    return "scales other than one float";
  }
  return p.about.compute == CUBLAS_COMPUTE_32I ? WrongForInts(p) : WrongForFloats(p);
}

class Hash {
 public:
  template <class... Values>
  void Add(const Values&... values) {
    ((sum_ = (sum_ ^ static_cast<uint64_t>(values)) * 0x9e3779b97f4a7c15, sum_ ^= sum_ >> 29), ...);
  }
  uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 1;
};

// All of it but pointers.
uint64_t HashOf(const Problem& p) {
  Hash hash;
  const Description& about = p.about;
  hash.Add(about.compute, about.scale, about.bias_type, about.pointer_mode, about.a_operation, about.b_operation,
           about.epilogue, about.a_scale_mode, about.b_scale_mode);
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d}) {
    hash.Add(l->type, l->order, l->batches, l->rows, l->columns, l->ld, l->stride);
  }
  return hash.sum();
}

}  // namespace

Problem ReadProblem(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {Read<Description>(description), Read<Layout>(a), Read<Layout>(b), Read<Layout>(c), Read<Layout>(d)};
}

Matrix View(const Layout& layout, const void* data, int32_t operation) {
  const bool row_major = layout.order == CUBLASLT_ORDER_ROW;
  Matrix matrix{data, layout.type, row_major ? layout.ld : 1, row_major ? 1 : layout.ld, layout.stride};
  if (operation != CUBLAS_OP_N) std::swap(matrix.row_step, matrix.column_step);
  return matrix;
}

cublasStatus_t Describe(const Problem& p, Gemm* gemm, std::string* why) {
  if (!Sound(p.a) || !Sound(p.b) || !Sound(p.c) || !Sound(p.d)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool a_plain = p.about.a_operation == CUBLAS_OP_N, b_plain = p.about.b_operation == CUBLAS_OP_N;
  const uint64_t m = a_plain ? p.a.rows : p.a.columns, k = a_plain ? p.a.columns : p.a.rows;
  const uint64_t b_k = b_plain ? p.b.rows : p.b.columns, n = b_plain ? p.b.columns : p.b.rows;
  const bool shapes = k == b_k && p.d.rows == m && p.d.columns == n && p.c.rows == m && p.c.columns == n;
  const bool batches = p.a.batches == p.b.batches && p.a.batches == p.c.batches && p.a.batches == p.d.batches;
  if (!shapes || !batches) return CUBLAS_STATUS_INVALID_VALUE;
  *why = Unsupported(p);
  if (!why->empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
  gemm->m = static_cast<int64_t>(m);
  gemm->n = static_cast<int64_t>(n);
  gemm->k = static_cast<int64_t>(k);
  gemm->batches = p.a.batches;
  gemm->a_scale = static_cast<const float*>(p.about.a_scale);
  gemm->b_scale = static_cast<const float*>(p.about.b_scale);
  if ((p.about.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) gemm->activation = Activation::kRelu;
  if ((p.about.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) gemm->activation = Activation::kGelu;
  if ((p.about.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
    gemm->bias = p.about.bias;
    gemm->bias_type = p.about.bias_type == kBiasAsD ? p.d.type : static_cast<cudaDataType>(p.about.bias_type);
    if (!Known(gemm->bias_type)) {
      *why = "this type of bias";
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

Algorithm Plain(const Problem& problem, const Preference& preference) {
  Algorithm algorithm = {kMagic, HashOf(problem), 0, {}};
  std::copy(std::begin(preference.alignment), std::end(preference.alignment), algorithm.alignment);
  return algorithm;
}

Algorithm WithWorkspace(const Problem& problem, const Preference& preference) {
  Algorithm algorithm = Plain(problem, preference);
  const uint64_t elements = problem.d.rows * problem.d.columns * static_cast<uint64_t>(problem.d.batches);
  algorithm.workspace = std::min(kMostWorkspace, (elements * 8 + 255) / 256 * 256);  // two partial sums
  return algorithm;
}

std::string WhatIsWrong(const Algorithm& algorithm, const Problem& problem) {
  if (algorithm.magic != kMagic) return "the algorithm is not of cublasLtMatmulAlgoGetHeuristic";
  if (algorithm.problem != HashOf(problem)) return "the algorithm was found for another problem";
  return {};
}

}  // namespace host_cuda::blas
