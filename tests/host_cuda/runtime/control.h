// What tests ask of the fake runtime beyond CUDA's own interface.
#pragma once

#include <string>

namespace host_cuda {

// As in a new process: nothing allocated, no streams, no errors, HOST_CUDA_* read afresh. The current device of this
// thread is 0. No other thread may use CUDA meanwhile; handles and pointers from before are void.
void Restart();

// Makes `host` launchable as the kernel that is registered with the engine under that name, as the host object that
// nvcc makes does.
void BindKernel(const void* host, const char* name);

}  // namespace host_cuda
