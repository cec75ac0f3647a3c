// The subset of cuBLASLt: cublasLtMatmul of dense matrices, row- or column-major, with batches and the epilogues
// default, bias, relu and relu with bias. What a heuristic is asked for it finds, one algorithm, if this could run it.
#include <cublasLt.h>

#include <cstring>
#include <utility>

#include "tests/host_cuda/cublas/gemm.h"
#include "tests/host_cuda/cublas/status.h"

namespace host_cuda::blas {
namespace {

// What lies in NVIDIA's opaque structs, so that those on a caller's stack work as well.
struct Layout {
  cudaDataType type;
  int32_t order, batches;
  uint64_t rows, columns;
  int64_t ld, stride;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale, bias_type;
  int32_t bias_type_set, pointer_mode, a_operation, b_operation;
  uint32_t epilogue;
  const void* bias;
};
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
  uint64_t workspace;
};

template <class T, class Opaque>
T Read(const Opaque* opaque) {
  T value;
  std::memcpy(&value, opaque->data, sizeof value);
  return value;
}

template <class T, class Opaque>
void Write(const T& value, Opaque* opaque) {
  std::memcpy(opaque->data, &value, sizeof value);
}

template <class T>
cublasStatus_t Take(T* field, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof *field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t Give(const T& field, void* to, size_t bytes, size_t* written) {
  if (written != nullptr) *written = sizeof field;
  if (to == nullptr) return bytes == 0 && written != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  if (bytes < sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, &field, sizeof field);
  return CUBLAS_STATUS_SUCCESS;
}

// Calls visit with the field of an attribute; what isn't known here is not supported.
template <class Visit>
cublasStatus_t OfLayout(Layout* layout, cublasLtMatrixLayoutAttribute_t attribute, Visit visit) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return visit(&layout->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return visit(&layout->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return visit(&layout->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return visit(&layout->columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return visit(&layout->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return visit(&layout->batches);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return visit(&layout->stride);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

template <class Visit>
cublasStatus_t OfDescription(Description* description, cublasLtMatmulDescAttributes_t attribute, Visit visit) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return visit(&description->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return visit(&description->scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return visit(&description->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return visit(&description->a_operation);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return visit(&description->b_operation);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return visit(&description->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return visit(&description->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      description->bias_type_set = 1;
      return visit(&description->bias_type);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

Matrix View(const Layout& layout, const void* data, int32_t operation) {
  const bool row_major = layout.order == CUBLASLT_ORDER_ROW;
  Matrix matrix{data, layout.type, row_major ? layout.ld : 1, row_major ? 1 : layout.ld, layout.stride};
  if (operation != CUBLAS_OP_N) std::swap(matrix.row_step, matrix.column_step);
  return matrix;
}

bool Sound(const Layout& layout) {
  const bool row_major = layout.order == CUBLASLT_ORDER_ROW;
  return layout.ld >= static_cast<int64_t>(row_major ? layout.columns : layout.rows) && layout.batches >= 1;
}

bool Supported(const Description& about, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (!Known(layout->type) || layout->order > CUBLASLT_ORDER_ROW) return false;
  }
  const bool epilogue = about.epilogue == CUBLASLT_EPILOGUE_DEFAULT || about.epilogue == CUBLASLT_EPILOGUE_BIAS ||
                        about.epilogue == CUBLASLT_EPILOGUE_RELU || about.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  const bool scalars =
      about.pointer_mode == CUBLASLT_POINTER_MODE_HOST || about.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  return SumsInFloat(about.compute) && about.scale == CUDA_R_32F && epilogue && scalars && a.type == b.type &&
         c.type == d.type && (d.type == CUDA_R_32F || d.type == a.type);
}

// The product without its pointers; CUBLAS_STATUS_SUCCESS if it is one.
cublasStatus_t Describe(const Description& about, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                        Gemm* gemm) {
  if (!Sound(a) || !Sound(b) || !Sound(c) || !Sound(d)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool a_plain = about.a_operation == CUBLAS_OP_N, b_plain = about.b_operation == CUBLAS_OP_N;
  const uint64_t m = a_plain ? a.rows : a.columns, k = a_plain ? a.columns : a.rows;
  const uint64_t b_k = b_plain ? b.rows : b.columns, n = b_plain ? b.columns : b.rows;
  if (k != b_k || d.rows != m || d.columns != n || c.rows != m || c.columns != n) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batches != b.batches || a.batches != c.batches || a.batches != d.batches) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Supported(about, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  gemm->m = static_cast<int64_t>(m);
  gemm->n = static_cast<int64_t>(n);
  gemm->k = static_cast<int64_t>(k);
  gemm->batches = a.batches;
  gemm->relu = (about.epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
  if ((about.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
    if (about.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    gemm->bias = about.bias;
    gemm->bias_type = about.bias_type_set != 0 ? about.bias_type : d.type;
    if (!Known(gemm->bias_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace host_cuda::blas

using namespace host_cuda::blas;  // NOLINT: the C interface below belongs to no namespace

struct cublasLtContext {};

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (const auto failure = Injected(__func__)) return *failure;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
  if (bytes < sizeof(Layout)) return CUBLAS_STATUS_ALLOC_FAILED;
  Write(Layout{type, CUBLASLT_ORDER_COL, 1, rows, columns, ld, 0}, layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{};
  return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, columns, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                size_t bytes) {
  Layout layout = Read<Layout>(opaque);
  const cublasStatus_t status = OfLayout(&layout, attribute, [&](auto* field) { return Take(field, from, bytes); });
  if (status == CUBLAS_STATUS_SUCCESS) Write(layout, opaque);
  return status;
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t opaque,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* to, size_t bytes,
                                                size_t* written) {
  Layout layout = Read<Layout>(opaque);
  return OfLayout(&layout, attribute, [&](auto* field) { return Give(*field, to, bytes, written); });
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (bytes < sizeof(Description)) return CUBLAS_STATUS_ALLOC_FAILED;
  Description fresh = {};
  fresh.compute = compute;
  fresh.scale = scale;
  fresh.pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  fresh.a_operation = fresh.b_operation = CUBLAS_OP_N;
  fresh.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  Write(fresh, description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *description = new cublasLtMatmulDescOpaque_t{};
  return cublasLtMatmulDescInit_internal(*description, sizeof **description, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t bytes) {
  Description description = Read<Description>(opaque);
  const cublasStatus_t status =
      OfDescription(&description, attribute, [&](auto* field) { return Take(field, from, bytes); });
  if (status == CUBLAS_STATUS_SUCCESS) Write(description, opaque);
  return status;
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute,
                                              void* to, size_t bytes, size_t* written) {
  Description description = Read<Description>(opaque);
  return OfDescription(&description, attribute, [&](auto* field) { return Give(*field, to, bytes, written); });
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t bytes) {
  if (bytes < sizeof(Preference)) return CUBLAS_STATUS_ALLOC_FAILED;
  Write(Preference{0}, preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

// Wishes change nothing here.
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t, const void* from, size_t) {
  return preference != nullptr && from != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (const auto failure = Injected(__func__)) return *failure;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested <= 0 || found == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  Description about = Read<Description>(description);
  if (about.bias == nullptr) about.bias = results;  // it may be set later
  Gemm gemm;
  const cublasStatus_t status =
      Describe(about, Read<Layout>(a), Read<Layout>(b), Read<Layout>(c), Read<Layout>(d), &gemm);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  if (const auto failure = Injected(__func__)) return *failure;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const auto about = Read<Description>(description);
  const auto la = Read<Layout>(a_layout), lb = Read<Layout>(b_layout), lc = Read<Layout>(c_layout);
  const auto ld = Read<Layout>(d_layout);
  Gemm gemm;
  if (const cublasStatus_t status = Describe(about, la, lb, lc, ld, &gemm); status != CUBLAS_STATUS_SUCCESS)
    return status;
  gemm.a = View(la, a, about.a_operation);
  gemm.b = View(lb, b, about.b_operation);
  gemm.c = View(lc, c, CUBLAS_OP_N);
  gemm.d = View(ld, d, CUBLAS_OP_N);
  if (about.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
    gemm.alpha_on_device = static_cast<const float*>(alpha);
    gemm.beta_on_device = static_cast<const float*>(beta);
  } else {
    gemm.alpha = *static_cast<const float*>(alpha);
    gemm.beta = *static_cast<const float*>(beta);
  }
  return EnqueueGemm(stream, __func__, gemm) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
