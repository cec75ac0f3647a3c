// cuBLASLt, found when it is asked for: programs and the plugin start without it.
//
// Limits: loaded once in a process, from one file, and never unloaded.
#pragma once

#include <cublasLt.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::kernels::cuda {

inline constexpr char kLtName[] = "libcublasLt.so.13";  // of the major version of the header that this is built with

// The functions of the library that are used here, each with its signature in cublasLt.h.
struct LtLibrary {
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusString) get_status_string = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) description_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) description_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) description_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

  // `file`: a path or a name for the system's loader; empty: kLtName. FAILED_PRECONDITION, saying what to do, where it
  // is missing, of another major version, or no cuBLASLt. The first that was loaded is the process's: another name then
  // is refused.
  static absl::StatusOr<const LtLibrary*> Load(const std::string& file);
};

// Of a call: `doing` opens the message.
absl::Status LtStatus(const LtLibrary& lt, cublasStatus_t result, absl::string_view doing);

}  // namespace sluice::kernels::cuda
