// What a program may ask for as an option, with another way if it isn't there. None of it is here, and each call says
// so. What no program does without isn't defined at all, so that it doesn't link.
#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/report.h"

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace

namespace {

cudaError_t NotHere(const char* name, const char* what) {
  return Api(name, Rule::kOrdinary, [&](Runtime&, auto&) { return Refuse(name, what); });
}

constexpr char kCooperative[] = "blocks run one after the other here, so a grid can't wait for itself";
constexpr char kClusters[] = "blocks run one after the other here, so a cluster can't meet";
constexpr char kManaged[] = "managed memory (cudaDevAttrManagedMemory is 0)";

// There is no driver to enter.
cudaError_t NoEntry(const char* name, const char* symbol, void** function, cudaDriverEntryPointQueryResult* status) {
  host_cuda::Report(std::string(name) + ": the driver's function " + symbol + " is not in the test runtime");
  *function = nullptr;
  if (status != nullptr) *status = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return NotHere(__func__, kCooperative);
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int*, const void*, const cudaLaunchConfig_t*) {
  return NotHere(__func__, kClusters);
}
cudaError_t cudaOccupancyMaxActiveClusters(int*, const void*, const cudaLaunchConfig_t*) {
  return NotHere(__func__, kClusters);
}

cudaError_t cudaMallocManaged(void** p, size_t, unsigned) {
  *p = nullptr;
  return NotHere(__func__, kManaged);
}
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return NotHere(__func__, kManaged);
}
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return NotHere(__func__, kManaged);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t*, const cudaMemPoolProps*) {
  return NotHere(__func__, "pools beside the default one");
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return NoEntry(__func__, symbol, function, status);
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* status) {
  return NoEntry(__func__, symbol, function, status);
}

}  // extern "C"
