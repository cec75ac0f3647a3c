// What waits in a stream: the seam between the fake runtime and what else puts work on streams (fake NCCL, fake
// cuBLAS).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace host_cuda {

struct DeviceWork {
  enum class Kind { kOther, kKernel, kCopy, kSet, kHost };

  std::string name;  // for traces and error messages
  // Called on the device thread when it is this work's turn; true: done; false: call again later (something else, a
  // peer's data, has to come first). Must not block.
  std::function<bool()> step;
  // Of a captured graph: makes a new instance for each replay, called by the host when it launches the graph, in the
  // order of the capture. Empty: the work may not be captured.
  std::function<DeviceWork()> fresh;
  Kind kind = Kind::kOther;  // two graphs that update one another have the same kinds of nodes
};

// In stream order; while the stream captures, a node of its graph.
cudaError_t Enqueue(cudaStream_t stream, DeviceWork work);

// Work that has no state of its own, so that every replay may run the same instance.
DeviceWork Repeatable(std::string name, DeviceWork::Kind kind, std::function<void()> run);

// What a device finds wrong while it runs something: reports the text; then ends the process (HOST_CUDA_ON_ERROR=abort,
// the default) or makes the error stick to that device (report). For use inside step().
void DeviceFault(cudaError_t error, const std::string& text);

// The same for what is wrong but hurts no device: reported, and ends the process unless HOST_CUDA_ON_ERROR=report.
void Found(const std::string& text);

// For use inside step(): whether [p, p + bytes) may be read or written now. What is not of the device passes.
// An empty string: yes; else what is wrong with it, such as memory that cudaFreeAsync has freed.
std::string CheckAccess(const void* p, size_t bytes);

// The error that sticks to a device; cudaSuccess: none. Such a device finishes nothing any more.
cudaError_t StuckWith(int device);

// The device that a stream belongs to; the current one's for the default stream; -1: no such stream.
int DeviceOf(cudaStream_t stream);

}  // namespace host_cuda
