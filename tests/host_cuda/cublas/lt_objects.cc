// The descriptors of cuBLASLt's C interface.
#include "tests/host_cuda/cublas/lt_objects.h"

#include <cstddef>
#include <string>

#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::blas {
namespace {

// Where the value of an attribute lies in one of the structs.
struct Field {
  int attribute;
  size_t offset, bytes;
};

constexpr Field kLayoutFields[] = {
    {CUBLASLT_MATRIX_LAYOUT_TYPE, offsetof(Layout, type), sizeof Layout::type},
    {CUBLASLT_MATRIX_LAYOUT_ORDER, offsetof(Layout, order), sizeof Layout::order},
    {CUBLASLT_MATRIX_LAYOUT_ROWS, offsetof(Layout, rows), sizeof Layout::rows},
    {CUBLASLT_MATRIX_LAYOUT_COLS, offsetof(Layout, columns), sizeof Layout::columns},
    {CUBLASLT_MATRIX_LAYOUT_LD, offsetof(Layout, ld), sizeof Layout::ld},
    {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, offsetof(Layout, batches), sizeof Layout::batches},
    {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, offsetof(Layout, stride), sizeof Layout::stride},
};

constexpr Field kDescriptionFields[] = {
    {CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, offsetof(Description, compute), sizeof Description::compute},
    {CUBLASLT_MATMUL_DESC_SCALE_TYPE, offsetof(Description, scale), sizeof Description::scale},
    {CUBLASLT_MATMUL_DESC_POINTER_MODE, offsetof(Description, pointer_mode), sizeof Description::pointer_mode},
    {CUBLASLT_MATMUL_DESC_TRANSA, offsetof(Description, a_operation), sizeof Description::a_operation},
    {CUBLASLT_MATMUL_DESC_TRANSB, offsetof(Description, b_operation), sizeof Description::b_operation},
    {CUBLASLT_MATMUL_DESC_EPILOGUE, offsetof(Description, epilogue), sizeof Description::epilogue},
    {CUBLASLT_MATMUL_DESC_BIAS_POINTER, offsetof(Description, bias), sizeof Description::bias},
    {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, offsetof(Description, bias_type), sizeof Description::bias_type},
    {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, offsetof(Description, sm_count_target), sizeof Description::sm_count_target},
    {CUBLASLT_MATMUL_DESC_FAST_ACCUM, offsetof(Description, fast_accum), sizeof Description::fast_accum},
    {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, offsetof(Description, a_scale), sizeof Description::a_scale},
    {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, offsetof(Description, b_scale), sizeof Description::b_scale},
    {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, offsetof(Description, a_scale_mode), sizeof Description::a_scale_mode},
    {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, offsetof(Description, b_scale_mode), sizeof Description::b_scale_mode},
};

constexpr size_t AlignmentOf(int matrix) {
  return offsetof(Preference, alignment) + static_cast<size_t>(matrix) * sizeof(uint32_t);
}

constexpr Field kPreferenceFields[] = {
    {CUBLASLT_MATMUL_PREF_SEARCH_MODE, offsetof(Preference, search_mode), sizeof Preference::search_mode},
    {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, offsetof(Preference, max_workspace), sizeof Preference::max_workspace},
    {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, offsetof(Preference, reduction_mask),
     sizeof Preference::reduction_mask},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(0), sizeof(uint32_t)},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(1), sizeof(uint32_t)},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(2), sizeof(uint32_t)},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(3), sizeof(uint32_t)},
    {CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, offsetof(Preference, max_waves), sizeof Preference::max_waves},
    {CUBLASLT_MATMUL_PREF_IMPL_MASK, offsetof(Preference, implementation_mask), sizeof Preference::implementation_mask},
};

// nullptr: not here, which is reported.
const Field* Find(const char* call, const Field* fields, size_t count, int attribute) {
  for (size_t i = 0; i < count; ++i) {
    if (fields[i].attribute == attribute) return &fields[i];
  }
  Report(std::string(call) + ": attribute " + std::to_string(attribute) + " is not in the test runtime");
  return nullptr;
}

cublasStatus_t SetField(const char* call, const Field* fields, size_t count, int attribute, char* object,
                        const void* from, size_t bytes) {
  const Field* field = Find(call, fields, count, attribute);
  if (field == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (from == nullptr || bytes != field->bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(object + field->offset, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t GetField(const char* call, const Field* fields, size_t count, int attribute, const char* object,
                        void* to, size_t bytes, size_t* written) {
  const Field* field = Find(call, fields, count, attribute);
  if (field == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (written != nullptr) *written = field->bytes;
  if (to == nullptr) return bytes == 0 && written != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  if (bytes < field->bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, object + field->offset, field->bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <size_t n, class Opaque>
cublasStatus_t Set(const char* call, const Field (&fields)[n], int attribute, Opaque* object, const void* from,
                   size_t bytes) {
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return SetField(call, fields, n, attribute, reinterpret_cast<char*>(object->data), from, bytes);
}

template <size_t n, class Opaque>
cublasStatus_t Get(const char* call, const Field (&fields)[n], int attribute, const Opaque* object, void* to,
                   size_t bytes, size_t* written) {
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return GetField(call, fields, n, attribute, reinterpret_cast<const char*>(object->data), to, bytes, written);
}

}  // namespace

Layout FreshLayout(cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
  return {type, CUBLASLT_ORDER_COL, 1, rows, columns, ld, 0};
}

Description FreshDescription(cublasComputeType_t compute, cudaDataType scale) {
  Description fresh = {};
  fresh.compute = compute;
  fresh.scale = scale;
  fresh.bias_type = kBiasAsD;
  fresh.pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  fresh.a_operation = fresh.b_operation = CUBLAS_OP_N;
  fresh.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return fresh;
}

Preference FreshPreference() {
  Preference fresh = {};
  for (uint32_t& alignment : fresh.alignment) alignment = 256;  // the real one's default
  return fresh;
}

}  // namespace host_cuda::blas

using namespace host_cuda::blas;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
  if (bytes < sizeof(Layout)) return CUBLAS_STATUS_ALLOC_FAILED;
  Write(FreshLayout(type, rows, columns, ld), layout);
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

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                size_t bytes) {
  return Set(__func__, kLayoutFields, attribute, layout, from, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* to, size_t bytes,
                                                size_t* written) {
  return Get(__func__, kLayoutFields, attribute, layout, to, bytes, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (bytes < sizeof(Description)) return CUBLAS_STATUS_ALLOC_FAILED;
  Write(FreshDescription(compute, scale), description);
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

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              size_t bytes) {
  return Set(__func__, kDescriptionFields, attribute, description, from, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, void* to, size_t bytes,
                                              size_t* written) {
  return Get(__func__, kDescriptionFields, attribute, description, to, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t bytes) {
  if (bytes < sizeof(Preference)) return CUBLAS_STATUS_ALLOC_FAILED;
  Write(FreshPreference(), preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return cublasLtMatmulPreferenceInit_internal(*preference, sizeof **preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                                    size_t bytes) {
  return Set(__func__, kPreferenceFields, attribute, preference, from, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void* to,
                                                    size_t bytes, size_t* written) {
  return Get(__func__, kPreferenceFields, attribute, preference, to, bytes, written);
}

}  // extern "C"
