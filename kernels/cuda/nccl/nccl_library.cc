#include "kernels/cuda/nccl/nccl_library.h"

#include <dlfcn.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace sluice::kernels::cuda {
namespace {

// Non-blocking communicators and their bounded number of blocks.
constexpr int kLeast = NCCL_VERSION(2, 18, 1);

template <class Function>
bool Find(void* library, const char* symbol, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (*function == nullptr) *missing = symbol;
  return *function != nullptr;
}

// The name of what it lacks; empty: nothing.
std::string Fill(void* library, NcclLibrary* n) {
  std::string missing;
  (void)(Find(library, "ncclGetVersion", &n->get_version, &missing) &&
         Find(library, "ncclGetErrorString", &n->get_error_string, &missing) &&
         Find(library, "ncclGetLastError", &n->get_last_error, &missing) &&
         Find(library, "ncclGetUniqueId", &n->get_unique_id, &missing) &&
         Find(library, "ncclCommInitRankConfig", &n->init_rank, &missing) &&
         Find(library, "ncclCommGetAsyncError", &n->get_async_error, &missing) &&
         Find(library, "ncclCommFinalize", &n->finalize, &missing) &&
         Find(library, "ncclCommDestroy", &n->destroy, &missing) &&
         Find(library, "ncclCommAbort", &n->abort, &missing) &&
         Find(library, "ncclGroupStart", &n->group_start, &missing) &&
         Find(library, "ncclGroupEnd", &n->group_end, &missing) && Find(library, "ncclSend", &n->send, &missing) &&
         Find(library, "ncclRecv", &n->recv, &missing) && Find(library, "ncclAllGather", &n->all_gather, &missing));
  return missing;
}

absl::StatusOr<NcclLibrary> Open(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("several GPUs need NCCL, which cannot be loaded (", dlerror(),
                                                      "): install libnccl2, or name the file with --nccl-library"));
  }
  NcclLibrary nccl;
  if (const std::string missing = Fill(library, &nccl); !missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " has no ", missing, ": it is no NCCL, or older than ", NcclVersionText(kLeast)));
  }
  if (const ncclResult_t result = nccl.get_version(&nccl.version); result != ncclSuccess) {
    return NcclStatus(nccl, result, nullptr, absl::StrCat(file, ": its version"));
  }
  if (nccl.version < kLeast || nccl.version / 10000 != NCCL_MAJOR) {
    return absl::FailedPreconditionError(absl::StrCat(file, " is NCCL ", NcclVersionText(nccl.version),
                                                      ": this program needs ", NcclVersionText(kLeast), " or later of ",
                                                      NCCL_MAJOR, ".x; name another file with --nccl-library"));
  }
  return nccl;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> NcclLibrary::Load(const std::string& file) {
  struct Loaded {
    absl::Mutex mutex;
    std::string name ABSL_GUARDED_BY(mutex);
    NcclLibrary nccl ABSL_GUARDED_BY(mutex);
  };
  static Loaded& loaded = *new Loaded;
  const std::string name = file.empty() ? kNcclName : file;
  absl::MutexLock lock(&loaded.mutex);
  if (loaded.name.empty()) {
    auto opened = Open(name);
    if (!opened.ok()) return opened.status();
    loaded.nccl = *opened;
    loaded.name = name;
  }
  if (loaded.name != name) {
    return absl::FailedPreconditionError(
        absl::StrCat("this process uses NCCL from ", loaded.name, " already, not from ", name));
  }
  return &loaded.nccl;
}

absl::Status NcclStatus(const NcclLibrary& nccl, ncclResult_t result, ncclComm_t communicator,
                        absl::string_view doing) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* const last = nccl.get_last_error(communicator);
  const std::string text = absl::StrCat(doing, ": ", nccl.get_error_string(result),
                                        last != nullptr && *last != '\0' ? absl::StrCat(" (", last, ")") : "");
  // A peer's end is the peer's: whoever hears of it may try again with others.
  return result == ncclRemoteError ? absl::UnavailableError(text) : absl::InternalError(text);
}

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace sluice::kernels::cuda
