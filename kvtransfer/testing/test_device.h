// GPUs for tests of what moves KV between them: those of the CUDA backend's plugin that SLUICE_TEST_CUDA_PLUGIN names,
// on the test runtime (tests/host_cuda) or on real ones.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace sluice::kvtransfer {

// False where no plugin is named or was built: then nothing of the rest may be used.
bool HaveTestDevices();

// A pool on one of the devices, counted from 0, by a backend that lives as long as the process.
std::unique_ptr<kernels::KvPool> NewTestPool(int device, const kernels::KvLayout& layout, int num_blocks);

}  // namespace sluice::kvtransfer
