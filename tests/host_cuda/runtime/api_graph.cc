// Graphs: captured, instantiated, replayed in random topological order, updated.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/handles.h"
#include "tests/host_cuda/runtime/kernel_work.h"
#include "tests/host_cuda/runtime/report.h"

struct CUgraphExec_st {
  std::shared_ptr<const host_cuda::rt::Nodes> nodes;
  host_cuda::rt::Place last_launch;  // a graph runs once at a time
};

namespace host_cuda::rt {
namespace {

// Handles that are alive. Guarded by the runtime's mutex.
std::set<cudaGraph_t>& Graphs() {
  static auto& graphs = *new std::set<cudaGraph_t>;
  return graphs;
}
std::set<cudaGraphExec_t>& Execs() {
  static auto& execs = *new std::set<cudaGraphExec_t>;
  return execs;
}

// One replay: at each step one node that nothing holds back, picked at random; a node that has to wait for something
// outside leaves the others their turn.
class Replay {
 public:
  Replay(std::shared_ptr<const Nodes> nodes, uint64_t seed) : nodes_(std::move(nodes)), random_(seed) {
    for (const Node& node : *nodes_) works_.push_back(node.work.fresh());
    done_.resize(works_.size());
    left_ = works_.size();
  }

  bool Step() {
    std::vector<size_t> ready;
    for (size_t i = 0; i < works_.size(); ++i) {
      const auto& after = (*nodes_)[i].after;
      const bool free =
          std::all_of(after.begin(), after.end(), [this](int n) { return done_[static_cast<size_t>(n)]; });
      if (!done_[i] && free) ready.push_back(i);
    }
    std::shuffle(ready.begin(), ready.end(), random_);
    for (size_t i : ready) {
      if (!works_[i].step()) continue;
      done_[i] = true;
      --left_;
      Progressed();
      break;
    }
    return left_ == 0;
  }

 private:
  std::shared_ptr<const Nodes> nodes_;
  std::mt19937_64 random_;
  std::vector<DeviceWork> works_;
  std::vector<bool> done_;
  size_t left_ = 0;
};

DeviceWork ReplayWork(std::shared_ptr<const Nodes> nodes, uint64_t seed) {
  DeviceWork work;
  work.name = "cudaGraphLaunch";
  auto replay = std::make_shared<Replay>(nodes, seed);
  work.step = [replay] { return replay->Step(); };
  work.fresh = [nodes, seed] { return ReplayWork(nodes, seed + 1); };
  return work;
}

// A graph launched while another is captured: its nodes come to be when that one is launched.
DeviceWork CapturedReplay(std::shared_ptr<const Nodes> nodes, uint64_t seed) {
  DeviceWork work;
  work.name = "cudaGraphLaunch";
  work.step = [] { return true; };  // never run itself
  work.fresh = [nodes, seed] { return ReplayWork(nodes, seed); };
  return work;
}

// What an update may not change.
bool SameShape(const Nodes& a, const Nodes& b, std::string* difference) {
  if (a.size() != b.size()) {
    *difference = std::to_string(a.size()) + " nodes become " + std::to_string(b.size());
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].work.kind == b[i].work.kind && a[i].after == b[i].after) continue;
    *difference = "node " + std::to_string(i) + ", " + a[i].work.name + ", becomes " + b[i].work.name +
                  (a[i].after == b[i].after ? "" : " after other nodes");
    return false;
  }
  return true;
}

// The place of a node in a graph; -1: it is not in it.
int PlaceOf(const Nodes& nodes, cudaGraphNode_t node) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.handle.get() == node; });
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

cudaError_t Instantiate(const char* name, cudaGraphExec_t* exec, cudaGraph_t graph) {
  return Api(name, Rule::kUnsafeInCapture, [&](Runtime&, auto&) {
    if (!Graphs().contains(graph)) return cudaErrorInvalidValue;
    *exec = new CUgraphExec_st{std::make_shared<const Nodes>(graph->nodes), {}};
    Execs().insert(*exec);
    return cudaSuccess;
  });
}

}  // namespace

void ForgetGraphs() {
  for (cudaGraph_t graph : Graphs()) delete graph;
  for (cudaGraphExec_t exec : Execs()) delete exec;
  Graphs().clear();
  Execs().clear();
}

}  // namespace host_cuda::rt

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace
using host_cuda::DeviceWork;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    return queue ? BeginCapture(runtime, queue, mode) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = new CUgraph_st;
    Graphs().insert(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (!Graphs().contains(graph) || (count > 0 && dependencies == nullptr)) return cudaErrorInvalidValue;
    if (edges != nullptr) return Refuse("cudaStreamBeginCaptureToGraph", "edges with data");
    std::vector<int> tips;
    for (size_t i = 0; i < count; ++i) {
      tips.push_back(PlaceOf(graph->nodes, dependencies[i]));
      if (tips.back() < 0) return cudaErrorInvalidValue;
    }
    return BeginCaptureInto(runtime, queue, mode, graph, std::move(tips));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    *graph = nullptr;
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    const cudaGraph_t into = queue->capture ? queue->capture->into : nullptr;
    Nodes nodes;
    if (const cudaError_t error = EndCapture(runtime, queue, &nodes)) return error;
    if (into != nullptr && !Graphs().contains(into)) return cudaErrorInvalidValue;  // destroyed meanwhile
    *graph = into != nullptr ? into : new CUgraph_st;
    (*graph)->nodes = std::move(nodes);
    Graphs().insert(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = RefuseDefaultStream(runtime, queue, "cudaStreamIsCapturing")) return error;
    *status = !queue->capture           ? cudaStreamCaptureStatusNone
              : queue->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  if (const cudaError_t error = cudaStreamIsCapturing(stream, status)) return error;
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (graph != nullptr || nodes != nullptr || edges != nullptr || count != nullptr) {
      return Refuse("cudaStreamGetCaptureInfo", "the graph of a capture that goes on");
    }
    if (id != nullptr && queue->capture) *id = queue->capture->id;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, ThreadCaptureMode());
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return Instantiate(__func__, exec, graph);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return Instantiate(__func__, exec, graph);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  return Api(__func__, Rule::kOrdinary,
             [&](Runtime&, auto&) { return Execs().contains(exec) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  std::shared_ptr<const Nodes> nodes;
  uint64_t seed = 0;
  bool captures = false;
  const cudaError_t error = Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue || !Execs().contains(exec)) return queue ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle;
    nodes = exec->nodes;
    captures = queue->capture != nullptr;
    seed = runtime.device(queue->device).random();
    return cudaSuccess;
  });
  if (error != cudaSuccess) return error;
  // Making the instances of the nodes may take locks (NCCL gives its operations their places in the order here).
  DeviceWork work = captures ? CapturedReplay(nodes, seed) : ReplayWork(nodes, seed);
  Runtime& runtime = TheRuntime();
  std::unique_lock<std::mutex> lock(runtime.mutex);
  const auto queue = runtime.Find(stream);
  if (!queue) return Remember(cudaErrorInvalidResourceHandle);
  const cudaError_t appended = AppendOrCapture(runtime, queue, std::move(work), {exec->last_launch});
  if (appended == cudaSuccess && !captures) exec->last_launch = {queue, queue->issued};
  return Remember(appended);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    if (!Execs().contains(exec) || !Graphs().contains(graph)) return cudaErrorInvalidValue;
    cudaGraphExecUpdateResultInfo result = {};
    std::string difference;
    if (!SameShape(*exec->nodes, graph->nodes, &difference)) {
      host_cuda::Report("cudaGraphExecUpdate: another graph: " + difference);
      result.result = cudaGraphExecUpdateErrorTopologyChanged;
    } else {
      Nodes nodes = graph->nodes;
      for (size_t i = 0; i < nodes.size(); ++i) nodes[i].handle = (*exec->nodes)[i].handle;
      exec->nodes = std::make_shared<const Nodes>(std::move(nodes));
    }
    if (info != nullptr) *info = result;
    return result.result == cudaGraphExecUpdateSuccess ? cudaSuccess : cudaErrorGraphExecUpdateFailure;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    if (!Graphs().contains(graph)) return cudaErrorInvalidValue;
    if (nodes != nullptr) {
      const size_t given = std::min(*count, graph->nodes.size());
      for (size_t i = 0; i < *count; ++i) nodes[i] = i < given ? graph->nodes[i].handle.get() : nullptr;
      *count = given;
      return cudaSuccess;
    }
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    for (const cudaGraph_t graph : Graphs()) {
      const int place = PlaceOf(graph->nodes, node);
      if (place < 0) continue;
      switch (graph->nodes[static_cast<size_t>(place)].work.kind) {
        case DeviceWork::Kind::kKernel:
          *type = cudaGraphNodeTypeKernel;
          return cudaSuccess;
        case DeviceWork::Kind::kCopy:
          *type = cudaGraphNodeTypeMemcpy;
          return cudaSuccess;
        case DeviceWork::Kind::kSet:
          *type = cudaGraphNodeTypeMemset;
          return cudaSuccess;
        case DeviceWork::Kind::kHost:
          *type = cudaGraphNodeTypeHost;
          return cudaSuccess;
        case DeviceWork::Kind::kOther:
          *type = cudaGraphNodeTypeEmpty;  // a collective: several nodes in reality
          return cudaSuccess;
      }
    }
    return cudaErrorInvalidValue;
  });
}

// Launches that were made keep what they had.
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    if (!Execs().contains(exec) || params == nullptr) return cudaErrorInvalidValue;
    if (params->extra != nullptr) return Refuse("cudaGraphExecKernelNodeSetParams", "parameters in `extra`");
    const int place = PlaceOf(*exec->nodes, node);
    if (place < 0) return cudaErrorInvalidValue;
    Nodes nodes = *exec->nodes;
    DeviceWork& work = nodes[static_cast<size_t>(place)].work;
    if (work.kind != DeviceWork::Kind::kKernel) return cudaErrorInvalidValue;
    const KernelLaunch launch{params->func, params->gridDim, params->blockDim, params->sharedMemBytes,
                              params->kernelParams};
    if (const cudaError_t error = MakeKernelWork(launch, CurrentDevice(), &work)) return error;
    exec->nodes = std::make_shared<const Nodes>(std::move(nodes));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Api(__func__, Rule::kAlways, [&](Runtime&, auto&) {
    if (Graphs().erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

// A launch that still runs keeps what it needs.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return Api(__func__, Rule::kAlways, [&](Runtime&, auto&) {
    if (Execs().erase(exec) == 0) return cudaErrorInvalidValue;
    delete exec;
    return cudaSuccess;
  });
}

}  // extern "C"
