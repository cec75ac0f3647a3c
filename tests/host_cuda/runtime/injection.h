// Failures on purpose. HOST_CUDA_FAIL lists them, comma-separated: NAME:N=ERROR, the N-th time that NAME comes fails
// with ERROR; N+ is the N-th and all later ones.
//   NAME   a function (cudaMalloc, ncclAllReduce, cublasLtMatmul, ...): the call returns the error and does nothing; or
//          launch, copy: the N-th kernel or copy that a device runs fails on the device, so that the error comes late
//          and sticks, as a real fault does
//   ERROR  as the API spells it: cudaErrorMemoryAllocation, ncclSystemError, CUBLAS_STATUS_NOT_SUPPORTED
// Example: HOST_CUDA_FAIL="cudaMalloc:3=cudaErrorMemoryAllocation,launch:7=cudaErrorLaunchFailure"
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace host_cuda {

class FailurePlan {
 public:
  // Empty: understood; else what is wrong. Counts start anew.
  std::string Set(const std::string& text);

  // Counts one more call of `name`; the error it shall fail with.
  std::optional<std::string> Next(const std::string& name);

 private:
  struct Entry {
    uint64_t first = 0;
    bool later_too = false;
    std::string error;
  };
  std::mutex mutex_;
  std::map<std::string, std::vector<Entry>> entries_;
  std::map<std::string, uint64_t> calls_;
};

// The process's plan: what HOST_CUDA_FAIL says.
FailurePlan& TheFailurePlan();

}  // namespace host_cuda
