// Which core each thread of a pool keeps to itself. Pure.
#pragma once

#include <sched.h>

#include <vector>

namespace sluice::kernels::cpu {

// One of the `allowed` cores for each of `threads` threads, ascending, where there are just so many and fewer than the
// machine has: whoever confined the process means it to have them alone. Else nothing: the system places threads better
// among others.
std::vector<int> OwnCores(const cpu_set_t& allowed, int threads, int installed);

}  // namespace sluice::kernels::cpu
