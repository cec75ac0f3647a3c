// NCCL, found when it is needed: programs and the plugin start without it.
//
// Limits: loaded once in a process, from one file, and never unloaded (threads of NCCL's own may run to the end).
#pragma once

#include <nccl.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::kernels::cuda {

inline constexpr char kNcclName[] = "libnccl.so.2";

// The functions of the library that are used here, each with its signature in nccl.h.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  int version = 0;  // as NCCL_VERSION_CODE

  // `file`: a path or a name for the system's loader; empty: kNcclName. FAILED_PRECONDITION, saying what to do, where
  // it is missing, too old, or no NCCL. The first that was loaded is the process's: another name then is refused.
  static absl::StatusOr<const NcclLibrary*> Load(const std::string& file);
};

// Of a call: `doing` opens the message. ncclInProgress is no error.
absl::Status NcclStatus(const NcclLibrary& nccl, ncclResult_t result, ncclComm_t communicator, absl::string_view doing);

// "2.28.9"
std::string NcclVersionText(int version);

}  // namespace sluice::kernels::cuda
