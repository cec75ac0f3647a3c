#include "tests/host_cuda/runtime/properties.h"

#include <cstdio>
#include <cstring>

namespace host_cuda::rt {

cudaDeviceProp PropertiesOf(int device, size_t memory) {
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "host_cuda device %d", device);
  std::snprintf(p.uuid.bytes, sizeof p.uuid.bytes, "host_cuda-%04d", device);
  p.totalGlobalMem = memory;
  p.major = 8;
  p.minor = 0;
  p.multiProcessorCount = kMultiprocessors;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  p.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  p.sharedMemPerBlock = kSharedPerBlock;
  p.sharedMemPerBlockOptin = kSharedPerBlockOptIn;
  p.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  p.reservedSharedMemPerBlock = kSharedReserved;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.totalConstMem = 65536;
  p.l2CacheSize = 40 << 20;
  p.memoryBusWidth = 5120;
  p.textureAlignment = 512;
  p.asyncEngineCount = 3;
  p.concurrentKernels = 1;
  p.unifiedAddressing = 1;
  p.canMapHostMemory = 1;
  p.streamPrioritiesSupported = 1;
  p.memoryPoolsSupported = 1;
  p.ipcEventSupported = 1;
  p.hostRegisterSupported = 1;
  p.pciBusID = device + 1;
  return p;
}

bool AttributeOf(cudaDeviceAttr attribute, int device, int* value) {
  const cudaDeviceProp p = PropertiesOf(device, 0);
  const struct {
    cudaDeviceAttr attribute;
    size_t value;
  } known[] = {
      {cudaDevAttrMaxThreadsPerBlock, static_cast<size_t>(p.maxThreadsPerBlock)},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 0x7fffffff},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor},
      {cudaDevAttrReservedSharedMemoryPerBlock, kSharedReserved},
      {cudaDevAttrTotalConstantMemory, p.totalConstMem},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrMultiProcessorCount, kMultiprocessors},
      {cudaDevAttrMaxThreadsPerMultiProcessor, kThreadsPerMultiprocessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, kBlocksPerMultiprocessor},
      {cudaDevAttrComputeCapabilityMajor, 8},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrClockRate, 1410000},
      {cudaDevAttrMemoryClockRate, 1215000},
      {cudaDevAttrGlobalMemoryBusWidth, 5120},
      {cudaDevAttrL2CacheSize, 40 << 20},
      {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrStreamPrioritiesSupported, 1},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrIpcEventSupport, 1},
      {cudaDevAttrHostRegisterSupported, 1},
      {cudaDevAttrPciBusId, static_cast<size_t>(device) + 1},
      // Not there: a program that asks has to take its other path.
      {cudaDevAttrCooperativeLaunch, 0},
      {cudaDevAttrClusterLaunch, 0},
      {cudaDevAttrManagedMemory, 0},
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrEccEnabled, 0},
      {cudaDevAttrGPUDirectRDMASupported, 0},
  };
  for (const auto& row : known) {
    if (row.attribute != attribute) continue;
    *value = static_cast<int>(row.value);
    return true;
  }
  return false;
}

}  // namespace host_cuda::rt
