// Graphs and how streams are captured into them. All of it with the runtime's mutex held.
//
// The rules held: the default stream can't be captured; calls that could wait for a capturing stream, or that allocate,
// are refused while one captures (cudaStreamCaptureModeGlobal: in every thread, ThreadLocal: in the capturing one,
// Relaxed: nowhere), end the capture as invalid, and are named in a report; a stream joins through an event and must be
// joined back; the default stream must not be used while a blocking stream captures.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/host_cuda/runtime/device_work.h"
#include "tests/host_cuda/runtime/runtime.h"

struct CUgraphNode_st {};

namespace host_cuda::rt {

struct Node {
  DeviceWork work;
  std::vector<int> after;
  std::shared_ptr<CUgraphNode_st> handle =
      std::make_shared<CUgraphNode_st>();  // the same in a graph and what is made of it
};
using Nodes = std::vector<Node>;

}  // namespace host_cuda::rt

struct CUgraph_st {
  host_cuda::rt::Nodes nodes;
};

namespace host_cuda::rt {

struct Capture {
  uint64_t id = 0;
  Nodes nodes;
  std::shared_ptr<Queue> origin;
  std::set<std::shared_ptr<Queue>> members;
  std::thread::id thread;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalid = false;
  cudaGraph_t into = nullptr;  // cudaStreamBeginCaptureToGraph: the graph that the nodes are added to
};

// The work goes into the stream, or, while that captures, becomes a node.
cudaError_t AppendOrCapture(Runtime& runtime, const std::shared_ptr<Queue>& queue, DeviceWork work,
                            std::vector<Place> after = {});

// A call that must not be made while a capture goes on.
cudaError_t RefuseInCapture(Runtime& runtime, const char* call);

// A call about this very stream that can't be while it captures (waiting for it, asking it).
cudaError_t RefuseIfCapturing(const std::shared_ptr<Queue>& queue, const char* call);

// The default stream, implicitly or not, while a blocking stream captures.
cudaError_t RefuseDefaultStream(Runtime& runtime, const std::shared_ptr<Queue>& queue, const std::string& what);

// This thread's way to treat others' captures (cudaThreadExchangeStreamCaptureMode).
cudaStreamCaptureMode& ThreadCaptureMode();

cudaError_t BeginCapture(Runtime& runtime, const std::shared_ptr<Queue>& queue, cudaStreamCaptureMode mode);
// Adds to a graph; the stream's first node comes after the tips, which are places in it.
cudaError_t BeginCaptureInto(Runtime& runtime, const std::shared_ptr<Queue>& queue, cudaStreamCaptureMode mode,
                             cudaGraph_t graph, std::vector<int> tips);
cudaError_t EndCapture(Runtime& runtime, const std::shared_ptr<Queue>& queue, Nodes* nodes);

}  // namespace host_cuda::rt
