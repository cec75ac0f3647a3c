// Failures on purpose. HOST_CUDA_FAIL lists them, comma-separated: NAME[/DETAIL][@DEVICE]:N=WHAT, the N-th time that
// NAME comes WHAT happens; N+ is the N-th and all later ones.
//   NAME    a function (cudaMalloc, ncclAllReduce, cublasLtMatmul, ...): the call returns the error and does nothing;
//   or
//           launch, copy: the N-th kernel or copy that a device runs fails on the device, so that the error comes late
//           and sticks, as a real fault does; or
//           operation: the N-th operation of NCCL that a device would begin: the communicator has the error then
//   DETAIL  only those with this in the (mangled) name of the kernel of a launch, or that allocate at least so many
//   bytes:
//           launch/attention, cudaMalloc/1000000
//   DEVICE  only those of this device
//   WHAT    an error as the API spells it: cudaErrorMemoryAllocation, ncclSystemError, CUBLAS_STATUS_NOT_SUPPORTED;
//           kill: the process dies of SIGKILL; stall: an operation of NCCL begins never
// Example: HOST_CUDA_FAIL="cudaMalloc:3=cudaErrorMemoryAllocation,launch/sample@1:7=cudaErrorLaunchFailure"
//
// HOST_CUDA_FAIL_FILE names a file with such a list, which may come, change (by a rename) and go at any time: it holds
// from the next call on, counts begin then, and it takes the place of HOST_CUDA_FAIL. So a test fails what it is about
// to ask for. All that happens on purpose says so on stderr.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace host_cuda {

// Something that may be made to fail.
struct Fallible {
  std::string_view name;
  std::string_view detail = {};  // of a kernel
  uint64_t bytes = 0;            // of an allocation
  int device = 0;
};

class FailurePlan {
 public:
  // Empty: understood; else what is wrong. Counts start anew.
  std::string Set(const std::string& text);

  // Counts it; what shall happen to it.
  std::optional<std::string> Next(const Fallible& what);

 private:
  struct Entry {
    std::string name, detail;
    int device = -1;  // any
    uint64_t first = 0, seen = 0;
    bool later_too = false;
    std::string error;
  };
  static std::string Parse(const std::string& word, Entry* entry);
  static bool Matches(const Entry& entry, const Fallible& what);

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

// The process's plan: what HOST_CUDA_FAIL says, or the file.
FailurePlan& TheFailurePlan();

// Asks it, of the current device; says what happens, and kills. The error, or "stall".
std::optional<std::string> FailsOnPurpose(std::string_view name, std::string_view detail = {}, uint64_t bytes = 0);

}  // namespace host_cuda
