#include "kernels/cuda/backend/storage.h"

namespace sluice::kernels::cuda {

// An error stays with the stream's device, and the step's Finish reports it.
void CudaKvPool::CopyBlock(int from, int to) {
  const size_t block = layout().block_bytes();
  (void)cudaMemcpy2DAsync(At(0) + size_t(to) * block, layer_bytes(), At(0) + size_t(from) * block, layer_bytes(), block,
                          size_t(layout().num_layers), cudaMemcpyDeviceToDevice, stream_);
}

}  // namespace sluice::kernels::cuda
