#include "kernels/cuda/gemm/lt_library.h"

#include <dlfcn.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace sluice::kernels::cuda {
namespace {

static_assert(CUBLAS_VER_MAJOR == 13, "kLtName is of another version");
constexpr size_t kMajor = 10000;  // of what cublasLtGetVersion says

template <class Function>
bool Find(void* library, const char* symbol, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (*function == nullptr) *missing = symbol;
  return *function != nullptr;
}

// The name of what it lacks; empty: nothing.
std::string Fill(void* library, LtLibrary* l) {
  std::string missing;
  (void)(Find(library, "cublasLtGetVersion", &l->get_version, &missing) &&
         Find(library, "cublasLtGetStatusString", &l->get_status_string, &missing) &&
         Find(library, "cublasLtCreate", &l->create, &missing) &&
         Find(library, "cublasLtDestroy", &l->destroy, &missing) &&
         Find(library, "cublasLtMatmulDescCreate", &l->description_create, &missing) &&
         Find(library, "cublasLtMatmulDescDestroy", &l->description_destroy, &missing) &&
         Find(library, "cublasLtMatmulDescSetAttribute", &l->description_set, &missing) &&
         Find(library, "cublasLtMatrixLayoutCreate", &l->layout_create, &missing) &&
         Find(library, "cublasLtMatrixLayoutDestroy", &l->layout_destroy, &missing) &&
         Find(library, "cublasLtMatmulPreferenceCreate", &l->preference_create, &missing) &&
         Find(library, "cublasLtMatmulPreferenceDestroy", &l->preference_destroy, &missing) &&
         Find(library, "cublasLtMatmulPreferenceSetAttribute", &l->preference_set, &missing) &&
         Find(library, "cublasLtMatmulAlgoGetHeuristic", &l->get_heuristic, &missing) &&
         Find(library, "cublasLtMatmul", &l->matmul, &missing));
  return missing;
}

absl::StatusOr<LtLibrary> Open(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cuBLASLt cannot be loaded (", dlerror(),
                                                      "): install it, or name the file with --cublaslt-library"));
  }
  LtLibrary lt;
  if (const std::string missing = Fill(library, &lt); !missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(file, " has no ", missing, ": it is no cuBLASLt"));
  }
  if (const size_t version = lt.get_version(); version / kMajor != CUBLAS_VER_MAJOR) {
    return absl::FailedPreconditionError(absl::StrCat(file, " is cuBLASLt ", version / kMajor,
                                                      ".x: this program needs ", CUBLAS_VER_MAJOR,
                                                      ".x; name another file with --cublaslt-library"));
  }
  return lt;
}

}  // namespace

absl::StatusOr<const LtLibrary*> LtLibrary::Load(const std::string& file) {
  struct Loaded {
    absl::Mutex mutex;
    std::string name ABSL_GUARDED_BY(mutex);
    LtLibrary lt ABSL_GUARDED_BY(mutex);
  };
  static Loaded& loaded = *new Loaded;
  const std::string name = file.empty() ? kLtName : file;
  absl::MutexLock lock(&loaded.mutex);
  if (loaded.name.empty()) {
    auto opened = Open(name);
    if (!opened.ok()) return opened.status();
    loaded.lt = *opened;
    loaded.name = name;
  }
  if (loaded.name != name) {
    return absl::FailedPreconditionError(
        absl::StrCat("this process uses cuBLASLt from ", loaded.name, " already, not from ", name));
  }
  return &loaded.lt;
}

absl::Status LtStatus(const LtLibrary& lt, cublasStatus_t result, absl::string_view doing) {
  if (result == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(doing, ": ", lt.get_status_string(result)));
}

}  // namespace sluice::kernels::cuda
