#include "tests/host_cuda/plugin/sample_plugin.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/host_cuda/plugin/sample_kernels.h"
#include "tests/host_cuda/plugin/sample_libraries.h"

namespace host_cuda::sample {
namespace {

// The first thing that went wrong, in words; later steps do nothing.
struct Steps {
  std::string why;

  template <class Call>
  void Cuda(const char* what, Call call) {
    if (!why.empty()) return;
    if (const cudaError_t error = call(); error != cudaSuccess)
      why = what + (": " + std::string(cudaGetErrorName(error)));
  }
  template <class Call>
  void Other(const char* what, Call call) {
    if (!why.empty()) return;
    if (const int error = static_cast<int>(call()); error != 0) why = what + (": " + std::to_string(error));
  }
};

void Say(const std::string& text, char* why, size_t bytes) {
  std::snprintf(why, bytes, "%s", text.c_str());
}

int Devices(std::string* why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return std::min(count, 2);
  *why = std::string("no CUDA device: ") + cudaGetErrorString(error);
  return -1;
}

// One device's part. Buffers of `count` floats, and the weights, 3 on the diagonal.
struct Part {
  int device = 0;
  cudaStream_t stream = nullptr;
  float *x = nullptr, *y = nullptr, *z = nullptr, *result = nullptr, *weights = nullptr;
  cudaGraphExec_t exec = nullptr;

  void Start(Steps* steps) {
    constexpr int n = kSampleCount;
    std::vector<float> values(n), diagonal(n * n);
    for (int i = 0; i < n; ++i) {
      values[static_cast<size_t>(i)] = static_cast<float>(i + device);
      diagonal[static_cast<size_t>(i * n + i)] = 3;
    }
    steps->Cuda("cudaSetDevice", [&] { return cudaSetDevice(device); });
    steps->Cuda("cudaStreamCreate", [&] { return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); });
    for (float** p : {&x, &y, &z, &result}) {
      steps->Cuda("cudaMalloc", [&] { return cudaMalloc(reinterpret_cast<void**>(p), n * sizeof(float)); });
    }
    steps->Cuda("cudaMalloc",
                [&] { return cudaMalloc(reinterpret_cast<void**>(&weights), diagonal.size() * sizeof(float)); });
    steps->Cuda("copy", [&] { return cudaMemcpy(x, values.data(), n * sizeof(float), cudaMemcpyHostToDevice); });
    steps->Cuda("copy", [&] {
      return cudaMemcpy(weights, diagonal.data(), diagonal.size() * sizeof(float), cudaMemcpyHostToDevice);
    });
    steps->Cuda("cudaMemset", [&] { return cudaMemset(result, 0, n * sizeof(float)); });
    steps->Cuda("cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); });
  }

  void Stop() {
    cudaSetDevice(device);
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    for (float* p : {x, y, z, result, weights}) cudaFree(p);
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

void Product(const BlasLt& blas, cublasLtHandle_t handle, const Part& part, Steps* steps) {
  constexpr int n = kSampleCount;
  cublasLtMatmulDesc_t about = nullptr;
  cublasLtMatrixLayout_t square = nullptr, column = nullptr;
  steps->Other("description", [&] { return blas.description_create(&about, CUBLAS_COMPUTE_32F, CUDA_R_32F); });
  steps->Other("layout", [&] { return blas.layout_create(&square, CUDA_R_32F, n, n, n); });
  steps->Other("layout", [&] { return blas.layout_create(&column, CUDA_R_32F, n, 1, n); });
  const float one = 1, zero = 0;
  steps->Other("cublasLtMatmul", [&] {
    return blas.matmul(handle, about, &one, part.weights, square, part.y, column, &zero, part.z, column, part.z, column,
                       nullptr, nullptr, 0, part.stream);
  });
  if (column != nullptr) blas.layout_destroy(column);
  if (square != nullptr) blas.layout_destroy(square);
  if (about != nullptr) blas.description_destroy(about);
}

void Capture(const BlasLt& blas, cublasLtHandle_t handle, const Nccl& nccl, const std::vector<ncclComm_t>& comms,
             std::vector<Part>* parts, Steps* steps) {
  const auto on_each = [&](const auto& step) {
    for (Part& part : *parts) {
      cudaSetDevice(part.device);
      step(&part);
    }
  };
  on_each([&](Part* part) {
    steps->Cuda("cudaStreamBeginCapture",
                [&] { return cudaStreamBeginCapture(part->stream, cudaStreamCaptureModeThreadLocal); });
    steps->Cuda("kernel", [&] { return ScaleAndAdd(part->y, part->x, 2, 1, kSampleCount, part->stream); });
    Product(blas, handle, *part, steps);
  });
  // What was begun is ended whatever went wrong.
  steps->Other("ncclGroupStart", [&] { return nccl.group_start(); });
  on_each([&](Part* part) {
    steps->Other("ncclAllReduce", [&] {
      return nccl.all_reduce(part->z, part->z, kSampleCount, ncclFloat32, ncclSum,
                             comms[static_cast<size_t>(part->device)], part->stream);
    });
  });
  const ncclResult_t grouped = nccl.group_end();
  steps->Other("ncclGroupEnd", [&] { return grouped; });
  std::vector<cudaGraph_t> graphs(parts->size());
  on_each([&](Part* part) {
    steps->Cuda("kernel", [&] { return Accumulate(part->result, part->z, kSampleCount, part->stream); });
    const cudaError_t ended = cudaStreamEndCapture(part->stream, &graphs[static_cast<size_t>(part->device)]);
    steps->Cuda("cudaStreamEndCapture", [&] { return ended; });
  });
  on_each([&](Part* part) {  // not while another device still captures
    const cudaGraph_t graph = graphs[static_cast<size_t>(part->device)];
    steps->Cuda("cudaGraphInstantiate", [&] { return cudaGraphInstantiate(&part->exec, graph, 0); });
    if (graph != nullptr) cudaGraphDestroy(graph);
  });
}

std::string Run(int replays, float* result) {
  Steps steps;
  const int devices = Devices(&steps.why);
  if (devices < 0) return steps.why;
  BlasLt blas;
  Nccl nccl;
  if (std::string why = Open(&blas); !why.empty()) return why;
  if (std::string why = Open(&nccl); !why.empty()) return why;
  std::vector<Part> parts(static_cast<size_t>(devices));
  std::vector<ncclComm_t> comms(parts.size());
  for (int d = 0; d < devices; ++d) {
    parts[static_cast<size_t>(d)].device = d;
    parts[static_cast<size_t>(d)].Start(&steps);
  }
  cudaSetDevice(0);
  cublasLtHandle_t handle = nullptr;
  steps.Other("cublasLtCreate", [&] { return blas.create(&handle); });
  steps.Other("ncclCommInitAll", [&] { return nccl.init_all(comms.data(), devices, nullptr); });
  if (steps.why.empty()) Capture(blas, handle, nccl, comms, &parts, &steps);
  for (int i = 0; i < replays; ++i) {
    for (Part& part : parts) {
      cudaSetDevice(part.device);
      steps.Cuda("cudaGraphLaunch", [&] { return cudaGraphLaunch(part.exec, part.stream); });
    }
  }
  for (Part& part : parts) {
    steps.Cuda("cudaStreamSynchronize", [&] { return cudaStreamSynchronize(part.stream); });
  }
  steps.Cuda("copy",
             [&] { return cudaMemcpy(result, parts[0].result, kSampleCount * sizeof(float), cudaMemcpyDeviceToHost); });
  for (Part& part : parts) part.Stop();  // graphs before their communicators
  for (ncclComm_t comm : comms) {
    if (comm != nullptr) nccl.destroy(comm);
  }
  if (handle != nullptr) blas.destroy(handle);
  cudaSetDevice(0);
  return steps.why;
}

}  // namespace
}  // namespace host_cuda::sample

using namespace host_cuda::sample;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

__attribute__((visibility("default"))) int sample_devices(char* why, size_t bytes) {
  std::string text;
  const int devices = Devices(&text);
  Say(text, why, bytes);
  return devices;
}

__attribute__((visibility("default"))) int sample_run(int replays, float* result, char* why, size_t bytes) {
  const std::string text = Run(replays, result);
  Say(text, why, bytes);
  return text.empty() ? 0 : 1;
}

__attribute__((visibility("default"))) int sample_add_one(float* result, int count, void* stream) {
  return ScaleAndAdd(result, result, 1, 1, count, static_cast<cudaStream_t>(stream));
}

}  // extern "C"
