// There may be one fake runtime in a process: the static one of a test, or libhost_cudart.so. With both, each would
// have its own devices, and pointers of one would mean nothing to the other.
#pragma once

namespace host_cuda::rt {

// Ends the process, saying so, if another runtime has called it here.
void BeTheOnlyInstance();

}  // namespace host_cuda::rt
