#include "tests/host_cuda/runtime/capture.h"

#include <algorithm>

#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

void Invalidate(Capture& capture, const std::string& why) {
  Report("stream capture #" + std::to_string(capture.id) + " is invalid: " + why);
  capture.invalid = true;
}

// Everything that the given nodes come after, and they themselves.
std::set<int> Ancestors(const Nodes& nodes, std::vector<int> open) {
  std::set<int> seen;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    for (int before : nodes[static_cast<size_t>(node)].after) open.push_back(before);
  }
  return seen;
}

}  // namespace

cudaStreamCaptureMode& ThreadCaptureMode() {
  static thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t AppendOrCapture(Runtime& runtime, const std::shared_ptr<Queue>& queue, DeviceWork work,
                            std::vector<Place> after) {
  if (runtime.device(queue->device).stuck != cudaSuccess) return runtime.device(queue->device).stuck;
  if (!queue->capture) {
    if (cudaError_t error = RefuseDefaultStream(runtime, queue, work.name); error != cudaSuccess) return error;
    runtime.Append(queue, std::move(work), std::move(after));
    return cudaSuccess;
  }
  Capture& capture = *queue->capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  if (!work.fresh) {
    Invalidate(capture, work.name + " can't be captured");
    return cudaErrorStreamCaptureUnsupported;
  }
  capture.nodes.push_back({std::move(work), queue->tips});
  queue->tips = {static_cast<int>(capture.nodes.size()) - 1};
  return cudaSuccess;
}

cudaError_t RefuseInCapture(Runtime& runtime, const char* call) {
  if (ThreadCaptureMode() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : runtime.captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool others =
        capture->mode == cudaStreamCaptureModeGlobal && ThreadCaptureMode() == cudaStreamCaptureModeGlobal;
    if (capture->mode == cudaStreamCaptureModeRelaxed || !(own || others)) continue;
    Invalidate(*capture, std::string(call) + " was called while it was going on" + (own ? "" : " in another thread"));
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t RefuseIfCapturing(const std::shared_ptr<Queue>& queue, const char* call) {
  if (!queue->capture) return cudaSuccess;
  Invalidate(*queue->capture, std::string(call) + " was called on the stream that it captures");
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t RefuseDefaultStream(Runtime& runtime, const std::shared_ptr<Queue>& queue, const std::string& what) {
  if (!queue->default_stream) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : runtime.captures) {
    const bool ordered = std::any_of(capture->members.begin(), capture->members.end(), [&](const auto& member) {
      return member->blocking && member->device == queue->device;
    });
    if (!ordered) continue;
    Invalidate(*capture,
               what + " went to the default stream, which a blocking stream that captures would have to wait for");
    error = cudaErrorStreamCaptureImplicit;
  }
  return error;
}

cudaError_t BeginCapture(Runtime& runtime, const std::shared_ptr<Queue>& queue, cudaStreamCaptureMode mode) {
  if (queue->default_stream) return cudaErrorStreamCaptureUnsupported;
  if (queue->capture) return cudaErrorIllegalState;
  static uint64_t ids = 0;
  auto capture = std::make_shared<Capture>();
  capture->id = ++ids;
  capture->origin = queue;
  capture->members = {queue};
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  queue->capture = capture;
  queue->tips.clear();
  runtime.captures.push_back(capture);
  return cudaSuccess;
}

cudaError_t BeginCaptureInto(Runtime& runtime, const std::shared_ptr<Queue>& queue, cudaStreamCaptureMode mode,
                             cudaGraph_t graph, std::vector<int> tips) {
  if (const cudaError_t error = BeginCapture(runtime, queue, mode)) return error;
  queue->capture->into = graph;
  queue->capture->nodes = graph->nodes;
  queue->tips = std::move(tips);
  return cudaSuccess;
}

cudaError_t EndCapture(Runtime& runtime, const std::shared_ptr<Queue>& queue, Nodes* nodes) {
  const auto capture = queue->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != queue) return cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    Invalidate(*capture, "cudaStreamEndCapture was called by another thread than began it");
    return cudaErrorStreamCaptureWrongThread;
  }
  const std::set<int> joined = Ancestors(capture->nodes, queue->tips);
  bool loose = false;
  for (const auto& member : capture->members) {
    for (int tip : member->tips) loose |= !joined.contains(tip);
    member->capture = nullptr;
    member->tips.clear();
  }
  std::erase(runtime.captures, capture);
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (loose) {
    Report("stream capture #" + std::to_string(capture->id) +
           ": a stream that joined it was not joined back into the one that began it (cudaStreamWaitEvent is missing)");
    return cudaErrorStreamCaptureUnjoined;
  }
  *nodes = std::move(capture->nodes);
  return cudaSuccess;
}

}  // namespace host_cuda::rt
