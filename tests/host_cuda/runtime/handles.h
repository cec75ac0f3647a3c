// Ends the life of all handles, when the runtime starts anew. With the runtime's mutex held.
#pragma once

#include "tests/host_cuda/runtime/runtime.h"

namespace host_cuda::rt {

void ForgetStreams(Runtime& runtime);
void ForgetEvents();
void ForgetGraphs();

}  // namespace host_cuda::rt
