// Names the device memory that an access faulted in, before the process ends of it.
#pragma once

namespace host_cuda::rt {

// Once a process; earlier handlers of SIGSEGV and SIGBUS still run after it.
void WatchFaults();

}  // namespace host_cuda::rt
